package cli

import (
	"time"

	"postrider/relay"
)

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
