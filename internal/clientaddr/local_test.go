package clientaddr

import (
	"net/http/httptest"
	"testing"
)

func TestIsLocal(t *testing.T) {
	for _, c := range []struct {
		name, peer, host, header string
		want                     bool
	}{
		{"this machine", "127.0.0.1:40000", "localhost:8080", "", true},
		{"this machine by address", "127.0.0.1:40000", "127.0.0.1", "", true},
		{"this machine over IPv6", "[::1]:40000", "[::1]:8080", "", true},
		{"this machine, mapped", "[::ffff:127.0.0.1]:40000", "LOCALHOST", "", true},
		{"another machine", "192.0.2.1:40000", "localhost", "", false},
		{"another machine's name", "127.0.0.1:40000", "evil.example", "", false},
		{"a name that begins like ours", "127.0.0.1:40000", "localhost.evil.example", "", false},
		{"a name that looks like an address", "127.0.0.1:40000", "127.0.0.1.evil.example", "", false},
		{"an empty host", "127.0.0.1:40000", "", "", false},
		{"through a proxy", "127.0.0.1:40000", "localhost", "X-Forwarded-For", false},
		{"through another", "127.0.0.1:40000", "localhost", "Forwarded", false},
		{"through a third", "127.0.0.1:40000", "localhost", "Via", false},
		{"no address", "@", "localhost", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr, r.Host = c.peer, c.host
			if c.header != "" {
				r.Header.Set(c.header, "x")
			}
			if got := IsLocal(r); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
