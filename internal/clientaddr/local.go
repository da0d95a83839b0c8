package clientaddr

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// IsLocal tells whether a request comes from this machine, was meant for it and
// has passed no proxy. The Host is looked at because a web page of somebody
// else's may have its name resolve to 127.0.0.1 (DNS rebinding).
func IsLocal(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || strings.HasPrefix(name, "X-Forwarded-") {
			return false
		}
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && peer.Addr().Unmap().IsLoopback() && IsLoopback(r.Host)
}

// IsLoopback tells whether a host, with or without a port, is this machine by
// name: localhost, or an address of its loopback.
func IsLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.Unmap().IsLoopback()
}
