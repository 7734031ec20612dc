package e2e

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/postrider/postrider/test/parts"
)

// start runs the binary with these arguments and additional environment.
func start(t testing.TB, env map[string]string, args ...string) *parts.Relay {
	t.Helper()
	var further []string
	for name, value := range env {
		further = append(further, name+"="+value)
	}
	return parts.StartRelay(t, parts.RelayConfig{Env: parts.Environment(further...)}, args...)
}

// getJSON reads a page of the relay's listener.
func getJSON(url string, into any) (status int, err error) {
	client := http.Client{Timeout: parts.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	return response.StatusCode, json.NewDecoder(response.Body).Decode(into)
}
