package clientaddr

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	for _, c := range []struct {
		name      string
		trusted   string
		peer      string
		forwarded []string // lines of X-Forwarded-For
		want      string
	}{
		{"no proxy", "", "203.0.113.9:1234", nil, "203.0.113.9"},
		{"nobody is trusted", "", "127.0.0.1:1234", []string{"198.51.100.7"}, "127.0.0.1"},
		{"the peer is not a trusted proxy", "10.0.0.0/8", "203.0.113.9:1234", []string{"198.51.100.7"}, "203.0.113.9"},
		{"one proxy", "127.0.0.1", "127.0.0.1:1234", []string{"198.51.100.7"}, "198.51.100.7"},
		{"a trusted proxy that says nothing", "127.0.0.1", "127.0.0.1:1234", nil, "127.0.0.1"},
		{"a client that pretends", "127.0.0.1", "127.0.0.1:1234", []string{"192.0.2.1, 198.51.100.7"}, "198.51.100.7"},
		{"a client that pretends to be a proxy", "127.0.0.1,10.0.0.0/8", "127.0.0.1:1234", []string{"192.0.2.1, 10.0.0.1, 198.51.100.7"}, "198.51.100.7"},
		{"two proxies", "127.0.0.1,10.0.0.0/8", "127.0.0.1:1234", []string{"198.51.100.7,10.1.2.3"}, "198.51.100.7"},
		{"two proxies, two lines", "127.0.0.1,10.0.0.0/8", "127.0.0.1:1234", []string{"192.0.2.1, 198.51.100.7", "10.1.2.3"}, "198.51.100.7"},
		{"a client inside", "10.0.0.0/8", "10.0.0.1:1234", []string{"10.0.0.2"}, "10.0.0.2"},
		{"no address where one was due", "10.0.0.0/8", "10.0.0.1:1234", []string{"198.51.100.7, unknown"}, "10.0.0.1"},
		{"no address behind a second proxy", "10.0.0.0/8", "10.0.0.1:1234", []string{"unknown, 10.0.0.2"}, "10.0.0.2"},
		{"an empty line", "10.0.0.0/8", "10.0.0.1:1234", []string{""}, "10.0.0.1"},
		{"with a port", "10.0.0.0/8", "10.0.0.1:1234", []string{"198.51.100.7:4711"}, "198.51.100.7"},
		{"IPv6", "::1", "[::1]:1234", []string{"2001:db8::7"}, "2001:db8::7"},
		{"IPv6 with a port", "::1", "[::1]:1234", []string{"[2001:db8::7]:4711"}, "2001:db8::7"},
		{"IPv4 in IPv6 form as peer", "127.0.0.0/8", "[::ffff:127.0.0.1]:1234", []string{"::ffff:198.51.100.7"}, "198.51.100.7"},
		{"a zone", "fe80::/10", "[fe80::1%eth0]:1234", []string{"fe80::2%eth0"}, "fe80::2"},
		{"a peer without an address", "127.0.0.1", "pipe", []string{"198.51.100.7"}, "invalid IP"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Parse(c.trusted)
			if err != nil {
				t.Fatal(err)
			}
			r := &http.Request{RemoteAddr: c.peer, Header: http.Header{"X-Forwarded-For": c.forwarded}}
			if got := p.Of(r).String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{"proxy.internal", "10.0.0.0/33", "10.0.0.0/8,", "10.0.0.1:80", "::ffff:10.0.0.1", "::ffff:10.0.0.0/104", "fe80::1%eth0"} {
		if p, err := Parse(text); err == nil {
			t.Errorf("%q: got %v, want an error", text, p)
		}
	}
}

// Whatever a client writes, the answer is the peer's address unless the peer is
// trusted, and is never taken from before an entry that is not.
func FuzzOf(f *testing.F) {
	f.Add("198.51.100.7", true)
	f.Add("10.0.0.1, 198.51.100.7", true)
	f.Add(",,[::1]:1,x", false)
	proxies, err := Parse("10.0.0.0/8")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, forged string, trusted bool) {
		peer, seen := "203.0.113.9:1", "203.0.113.9"
		line := forged
		if trusted {
			peer, seen = "10.0.0.1:1", "192.0.2.44"
			line = forged + ", " + seen // as the proxy appends it
		}
		r := &http.Request{RemoteAddr: peer, Header: http.Header{"X-Forwarded-For": strings.Split(line, "\n")}}
		if got := proxies.Of(r); got != netip.MustParseAddr(seen) {
			t.Errorf("X-Forwarded-For %q: got %s, want %s", line, got, seen)
		}
	})
}
