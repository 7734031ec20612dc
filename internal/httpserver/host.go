package httpserver

import (
	"net"
	"net/http"
	"strings"
)

// localOnly refuses requests by a foreign name while the server listens on the loopback interface only: a page of somebody else can
// have its own name lead to 127.0.0.1, and would read what is shown here (DNS rebinding). Addresses, localhost and the configured
// host are who it can be; a server that others may reach is reached by names it does not know.
func (s *Server) localOnly(next http.Handler) http.Handler {
	configured, _, _ := net.SplitHostPort(s.config.Listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tcp, ok := s.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() && !isLocal(r.Host, configured) {
			http.Error(w, "http.listen is an address of this machine only, and is not known by this name: ask for localhost, "+
				"or have the proxy send Host: localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal judges the header Host.
func isLocal(host, configured string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		net.ParseIP(host) != nil || strings.EqualFold(host, configured)
}
