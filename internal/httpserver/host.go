package httpserver

import (
	"net"
	"net/http"
	"strings"
)

// localOnly refuses requests by a foreign name while the server listens on the loopback interface
// only: a foreign page could otherwise resolve its own name to 127.0.0.1 and read the answers (DNS
// rebinding). It accepts addresses, localhost and the configured host. A server that other
// machines reach has names that are not known here, so it accepts every name.
func (s *Server) localOnly(next http.Handler) http.Handler {
	configured, _, _ := net.SplitHostPort(s.config.Listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if tcp, ok := s.Addr().(*net.TCPAddr); ok && tcp.IP.IsLoopback() &&
			!isLocal(r.Host, configured) {
			http.Error(w, "http.listen is an address of this machine only, and is not known by this name: "+
				"use localhost, or have the proxy send Host: localhost", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLocal reports whether the header Host names this machine.
func isLocal(host, configured string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		net.ParseIP(host) != nil || strings.EqualFold(host, configured)
}
