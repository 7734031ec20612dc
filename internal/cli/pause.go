package cli

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

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/httpserver"
	"github.com/postrider/postrider/relay"
)

// pausePoll is how often the relay is asked whether it is paused yet.
const pausePoll = 100 * time.Millisecond

func newPause(a *app) *cobra.Command {
	var asJSON bool
	limit, reason := httpserver.DefaultPause, ""
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Let go of the slot for a while",
		Long: `pause asks the relay on admin.listen to finish the open transaction, wait for the broker, confirm and close its connection to
the slot, as a stop does, but to stay: its monitor, its metrics and its page go on. It returns when the slot is free. A relay that stands by
has no slot to let go of, and does not take over while it is paused.

While the relay is paused PostgreSQL keeps WAL for the slot. So a pause ends by itself after --for, and is not kept over a restart of the relay.
A standby takes over if there is one: pause it first.

Exit status: 0 paused, 69 no relay answers, 75 the relay stops, 77 the token is wrong, 78 there is no admin.listen.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "admin")
			if err != nil {
				return err
			}
			answer, err := askPause(cmd.Context(), l.Config.Admin, limit, reason)
			if err != nil {
				return err
			}
			if asJSON {
				return a.printJSON(answer)
			}
			return a.printPause(answer, time.Now())
		},
	}
	cmd.Flags().DurationVar(&limit, "for", limit, "how long at most; 0 for no limit")
	cmd.Flags().StringVar(&reason, "reason", "", "why, for those who look at the status meanwhile")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	a.keyFlags(cmd, "admin.listen")
	return cmd
}

func newResume(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resume",
		Short: "End a pause",
		Long: `resume asks the relay on admin.listen to relay again from where the slot stands. If it was not paused it says so, and that is no error.

Exit status: 0 resumed, 69 no relay answers, 77 the token is wrong, 78 there is no admin.listen.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.load(cmd, "admin")
			if err != nil {
				return err
			}
			var answer adminAnswer
			if err := askAdmin(cmd.Context(), l.Config.Admin, http.MethodPost, "/resume", nil, &answer); err != nil {
				return err
			}
			switch {
			case asJSON:
				return a.printJSON(answer)
			case answer.WasPaused:
				_, err = fmt.Fprintln(a.Stdout, "resumed")
			default:
				_, err = fmt.Fprintf(a.Stdout, "the relay was not paused: it is %s\n", answer.Phase)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	a.keyFlags(cmd, "admin.listen")
	return cmd
}

// askPause returns when the relay is paused, or when that was taken back meanwhile.
func askPause(ctx context.Context, c httpserver.Admin, limit time.Duration, reason string) (adminAnswer, error) {
	request := map[string]string{"for": limit.String(), "reason": reason}
	var answer adminAnswer
	if err := askAdmin(ctx, c, http.MethodPost, "/pause", request, &answer); err != nil {
		return adminAnswer{}, err
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
		if err := askAdmin(ctx, c, http.MethodGet, "/state", nil, &now); err != nil {
			return adminAnswer{}, err
		}
		r := now.Status.Relay
		answer.Phase, answer.Paused = r.Phase, r.Paused
		if r.Phase == relay.Paused || r.Paused.Since.IsZero() {
			return answer, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return adminAnswer{}, ctx.Err()
		}
	}
}

func (a *app) printPause(answer adminAnswer, now time.Time) error {
	p := answer.Paused
	if answer.Phase != relay.Paused {
		_, err := fmt.Fprintf(a.Stdout, "the relay was resumed meanwhile: it is %s\n", answer.Phase)
		return err
	}
	text := "paused until it is resumed"
	if !p.Until.IsZero() {
		text = fmt.Sprintf("paused until %s, for %s", p.Until.Local().Format("15:04:05"), health.Duration(p.Until.Sub(now).Round(time.Second)))
	}
	meanwhile := "PostgreSQL keeps WAL for the slot meanwhile"
	if p.StoodBy {
		meanwhile = "another process held the slot when this relay was paused, and this one does not take over meanwhile"
	}
	_, err := fmt.Fprintf(a.Stdout, "%s; %s\n%s\n", text, meanwhile, a.typed("next: postrider resume"))
	return err
}

// pauseText says of a pause until when it lasts, and why.
func pauseText(p relay.Pause) string {
	text := "the relay is paused until somebody resumes it"
	if !p.Until.IsZero() {
		text = "the relay is paused until " + p.Until.UTC().Format(time.RFC3339)
	}
	if p.Reason != "" {
		text += ": " + oneLine(p.Reason)
	}
	return text
}

// askAdmin sends a request to the admin listener of the relay on this machine, and reads the answer. request may be nil.
func askAdmin(ctx context.Context, c httpserver.Admin, method, path string, request, answer any) error {
	base := httpserver.Config{Listen: c.Listen}.LocalURL()
	if base == "" {
		return &failure{
			code: exitConfig, err: errors.New("admin.listen is empty or has port 0: there is no address to ask"),
			next: "set admin.listen = \"127.0.0.1:8433\" and admin.token_file, and start the relay again",
		}
	}
	token, err := c.Token.Reveal()
	if err != nil {
		return &failure{code: exitPermission, err: fmt.Errorf("admin.token_file: %w", err), next: "run this as a user who may read it"}
	}
	var body bytes.Buffer
	if request != nil {
		if err := json.NewEncoder(&body).Encode(request); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, daemonTimeout)
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
		return &failure{code: exitUnavailable, err: fmt.Errorf("ask the relay: %w", err), next: "postrider status   # does it run, and with this admin.listen?"}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return &failure{code: exitUnavailable, err: fmt.Errorf("read the answer of %s%s: %w", base, path, err)}
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
	codes := map[int]int{http.StatusUnauthorized: exitPermission, http.StatusConflict: exitTemporary, http.StatusBadRequest: exitUsage}
	var said httpserver.AdminError
	if json.Unmarshal(text, &said) != nil || said.Error == "" {
		return fmt.Errorf("%s answered %d: is it postrider that listens there?", url, status)
	}
	f := &failure{code: cmp.Or(codes[status], exitRuntime), err: fmt.Errorf("the relay refused: %s", said.Error), next: said.Next}
	if status == http.StatusUnauthorized {
		f.next = "give this command the admin.token or admin.token_file that the relay has: postrider config print"
	}
	return f
}
