package status

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/relay"
)

// pausePoll is how often the relay is asked whether it is paused yet.
const pausePoll = 100 * time.Millisecond

// adminAnswer is what pause and resume answer: what the relay does now. While it drains for a pause the phase is draining, and GET /state
// says when it is paused.
type AdminAnswer struct {
	Phase     relay.Phase `json:"phase"`
	Paused    relay.Pause `json:"paused,omitzero"`
	WasPaused bool        `json:"was_paused,omitempty"` // of a resume
}

// askPause returns when the relay is paused, or when that was taken back meanwhile.
func Pause(ctx context.Context, c httpserver.Admin, limit time.Duration, reason string) (AdminAnswer, error) {
	request := map[string]string{"for": limit.String(), "reason": reason}
	var answer AdminAnswer
	if err := Admin(ctx, c, http.MethodPost, "/pause", request, &answer); err != nil {
		return AdminAnswer{}, err
	}
	tick := time.NewTicker(pausePoll)
	defer tick.Stop()
	for {
		var now struct {
			Status struct {
				Relay struct {
					Phase  relay.Phase `json:"phase"`
					Paused relay.Pause `json:"paused"`
				} `json:"relay"`
			} `json:"status"`
		}
		if err := Admin(ctx, c, http.MethodGet, "/state", nil, &now); err != nil {
			return AdminAnswer{}, err
		}
		r := now.Status.Relay
		answer.Phase, answer.Paused = r.Phase, r.Paused
		if r.Phase == relay.Paused || r.Paused.Since.IsZero() {
			return answer, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return AdminAnswer{}, ctx.Err()
		}
	}
}

// askAdmin sends a request to the admin listener of the relay on this machine, and reads the answer. request may be nil.
func Admin(ctx context.Context, c httpserver.Admin, method, path string, request, answer any) error {
	base := httpserver.Config{Listen: c.Listen}.LocalURL()
	if base == "" {
		return &exit.Error{
			Code: exit.Config, Err: errors.New("admin.listen is empty or has port 0: there is no address to ask"),
			Next: "set admin.listen = \"127.0.0.1:8433\" and admin.token_file, and start the relay again",
		}
	}
	token, err := c.Token.Reveal()
	if err != nil {
		return &exit.Error{Code: exit.Permission, Err: fmt.Errorf("admin.token_file: %w", err), Next: "run this as a user who may read it"}
	}
	var body bytes.Buffer
	if request != nil {
		if err := json.NewEncoder(&body).Encode(request); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, DaemonTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, base+path, &body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	// No proxy and no redirect: neither may have the token.
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err != nil {
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("ask the relay: %w", err), Next: "postrider status   # does it run, and with this admin.listen?"}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &exit.Error{Code: exit.Unavailable, Err: fmt.Errorf("read the answer of %s%s: %w", base, path, err)}
	}
	if resp.StatusCode != http.StatusOK {
		return adminFailure(resp.StatusCode, text, base+path)
	}
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s%s did not answer with what was asked for: is it postrider that listens there?", base, path)
	}
	return nil
}

func adminFailure(status int, text []byte, url string) error {
	codes := map[int]int{http.StatusUnauthorized: exit.Permission, http.StatusConflict: exit.Temporary, http.StatusBadRequest: exit.Usage}
	var said httpserver.AdminError
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		return fmt.Errorf("%s answered %d: is it postrider that listens there?", url, status)
	}
	f := &exit.Error{Code: cmp.Or(codes[status], exit.Runtime), Err: fmt.Errorf("the relay refused: %s", said.Error), Next: said.Next}
	if status == http.StatusUnauthorized {
		f.Next = "give this command the admin.token or admin.token_file that the relay has: postrider config print"
	}
	return f
}
