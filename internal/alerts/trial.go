package alerts

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/health"
)

// Result is what one receiver did with a test notification.
type Result struct {
	Receiver string `json:"receiver"` // webhook or command
	Taken    bool   `json:"taken"`
	Error    string `json:"error,omitempty"` // shows no secret
	Next     string `json:"next,omitempty"`
}

// Test tells each receiver of a Config, once, of a condition PostriderTest and that it is over, so that nobody is left with it. It waits at
// most two timeouts for each.
func Test(ctx context.Context, cfg Config, about About) []Result {
	at := time.Now()
	w := word{
		condition: health.Condition{Name: "PostriderTest", Reason: "a test of postrider's notifications: nothing is wrong", Next: "nothing to do"},
		severity:  info, startsAt: at,
	}
	over := w
	over.resolved, over.endsAt = true, at
	var results []Result
	for _, r := range receivers(cfg, about) {
		result := Result{Receiver: r.name, Taken: true}
		for _, word := range []word{w, over} {
			attempt, cancel := context.WithTimeout(ctx, cfg.Timeout)
			failed := r.sender.send(attempt, word.message(about, r.name, cfg.ExternalURL))
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
