package alerts

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/health"
)

// Result is the result of a test notification to one receiver.
type Result struct {
	Receiver string `json:"receiver"` // webhook or command
	Taken    bool   `json:"taken"`
	Error    string `json:"error,omitempty"` // shows no secret
	Next     string `json:"next,omitempty"`
}

// Test sends a condition PostriderTest, and its end, once to each receiver of a Config. It blocks
// for at most two timeouts per receiver.
func Test(ctx context.Context, cfg Config, about About) []Result {
	at := time.Now()
	firing := notification{
		condition: health.Condition{
			Name: "PostriderTest", Next: "nothing to do",
			Reason: "a test of postrider's notifications: nothing is wrong",
		},
		severity: info, startsAt: at,
	}
	resolved := firing
	resolved.resolved, resolved.endsAt = true, at
	var results []Result
	for _, r := range receivers(cfg, about) {
		result := Result{Receiver: r.name, Taken: true}
		for _, n := range []notification{firing, resolved} {
			attempt, cancel := context.WithTimeout(ctx, cfg.Timeout)
			failed := r.sender.send(attempt, n.message(about, r.name, cfg.ExternalURL))
			cancel()
			if failed != nil {
				result.Taken, result.Error, result.Next = false, failed.text, failed.next
				break
			}
		}
		results = append(results, result)
	}
	return results
}
