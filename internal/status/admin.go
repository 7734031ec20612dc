package status

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/relay"
)

// pausePoll is the interval at which Pause looks whether the relay is paused.
const pausePoll = 100 * time.Millisecond

// AdminAnswer is the answer to pause and resume: what the relay does now. While it drains for a
// pause, Phase is draining, and GET /state shows when it is paused.
type AdminAnswer struct {
	Phase     relay.Phase `json:"phase"`
	Paused    relay.Pause `json:"paused,omitzero"`
	WasPaused bool        `json:"was_paused,omitempty"` // of a resume
}

// Pause pauses the relay. It returns when the relay is paused, or when somebody else has resumed
// it.
func Pause(
	ctx context.Context, c httpserver.Admin, limit time.Duration, reason string,
) (AdminAnswer, error) {
	order := map[string]string{"for": limit.String(), "reason": reason}
	var answer AdminAnswer
	if err := admin(ctx, c, http.MethodPost, "/pause", order, &answer); err != nil {
		return AdminAnswer{}, err
	}
	tick := time.NewTicker(pausePoll)
	defer tick.Stop()
	for {
		var now struct{ Status struct{ Relay AdminAnswer } }
		if err := admin(ctx, c, http.MethodGet, "/state", nil, &now); err != nil {
			return AdminAnswer{}, err
		}
		answer.Phase, answer.Paused = now.Status.Relay.Phase, now.Status.Relay.Paused
		if answer.Phase == relay.Paused || answer.Paused.Since.IsZero() {
			return answer, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return AdminAnswer{}, ctx.Err()
		}
	}
}

// Resume ends a pause of the relay.
func Resume(ctx context.Context, c httpserver.Admin) (answer AdminAnswer, err error) {
	err = admin(ctx, c, http.MethodPost, "/resume", nil, &answer)
	return answer, err
}

// admin sends a request to the admin listener of the relay on this machine, and decodes the
// answer. body is sent as JSON unless it is nil.
func admin(
	ctx context.Context, c httpserver.Admin, method, path string, body, answer any,
) error {
	base := httpserver.Config{Listen: c.Listen}.LocalURL()
	if base == "" {
		return &exit.Error{
			Code: exit.Config,
			Err:  errors.New("admin.listen is empty or has port 0: there is no address to connect to"),
			Next: "set admin.listen = \"127.0.0.1:8433\" and admin.token_file, and start the " +
				"relay again",
		}
	}
	token, err := c.Token.Reveal()
	if err != nil {
		return &exit.Error{
			Code: exit.Permission, Err: fmt.Errorf("admin.token_file: %w", err),
			Next: "run this as a user who may read it",
		}
	}
	var document []byte
	if body != nil {
		if document, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	code, text, err := request(ctx, method, base+path, token, document)
	if err != nil {
		return &exit.Error{
			Code: exit.Unavailable, Err: err,
			Next: "postrider status   # does it run, and with this admin.listen?",
		}
	}
	if code != http.StatusOK {
		return refusal(code, text, base+path)
	}
	if json.Unmarshal(text, answer) != nil {
		return notPostrider(base+path, code)
	}
	return nil
}

// refusal is the error of an answer other than 200.
func refusal(code int, text []byte, url string) error {
	var refused httpserver.AdminError
	if json.Unmarshal(text, &refused) != nil || refused.Error == "" {
		return notPostrider(url, code)
	}
	codes := map[int]int{
		http.StatusUnauthorized: exit.Permission,
		http.StatusConflict:     exit.Temporary,
		http.StatusBadRequest:   exit.Usage,
	}
	f := &exit.Error{
		Code: cmp.Or(codes[code], exit.Runtime),
		Err:  fmt.Errorf("the relay refused: %s", refused.Error), Next: refused.Next,
	}
	if code == http.StatusUnauthorized {
		f.Next = "give this command the admin.token or admin.token_file that the relay has: " +
			"postrider config print"
	}
	return f
}
