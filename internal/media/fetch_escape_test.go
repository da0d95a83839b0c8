package media

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// canary is a listener that nothing may ever connect to.
type canary struct {
	addr  netip.AddrPort
	calls atomic.Int64
}

func newCanary(t *testing.T, network, addr string) *canary {
	t.Helper()
	listener, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	c := &canary{addr: listener.Addr().(*net.TCPAddr).AddrPort()}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.calls.Add(1)
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
		if n := c.calls.Load(); n != 0 {
			t.Errorf("%d connections reached the canary at %s, want 0", n, c.addr)
		}
	})
	return c
}

// TestEscapes tries every spelling of a loopback address that some program
// takes for one, against a canary on a port that is allowed everywhere else.
func TestEscapes(t *testing.T) {
	c := newCanary(t, "tcp", "127.0.0.1:0")
	port := c.addr.Port()
	rig := newFetchRig(t, FetchOptions{}, fmt.Sprintf("media.example:%d", port))
	const denied = "the address is not allowed"
	for host, want := range map[string]string{
		"127.0.0.1":                  denied,
		"①②⑦.⓪.⓪.①":                  denied,
		"①②⑦.0.0.1":                  denied,
		"127。0。0。1":                  denied,
		"１２７.０.０.１":                  denied,
		"[::1]":                      denied,
		"[::]":                       denied,
		"[::ffff:127.0.0.1]":         denied,
		"[::ffff:7f00:1]":            denied,
		"[::127.0.0.1]":              denied,
		"[64:ff9b::7f00:1]":          denied,
		"[64:ff9b:1::7f00:1]":        denied,
		"[2002:7f00:1::]":            denied,
		"[2001:0:7f00:1::80ff:fffe]": denied,
		"[::1%25lo]":                 denied,
		"[fe80::1%25lo]":             denied,
		"0.0.0.0":                    denied,
		"127.255.255.254":            denied,
		"localhost":                  denied, // from the hosts file
		"localhost.":                 "",     // where a resolver knows it
		"127.1":                      "",     // from here on: whatever no resolver says
		"127.0.0.1.":                 "",
		"2130706433":                 "",
		"0x7f000001":                 "",
		"0177.0.0.1":                 "",
		"017700000001":               "",
		"0x7f.1":                     "",
		"127.0.0.1\u200b":            "",
		"":                           "the URL names no host",
		"user@127.0.0.1":             "a URL with a user name or password is not fetched",
		"media.example@127.0.0.1":    "a URL with a user name or password is not fetched",
		"media.example:x@127.0.0.1":  "a URL with a user name or password is not fetched",
		"@127.0.0.1":                 "a URL with a user name or password is not fetched",
		"127.0.0.1 ":                 "the URL is not valid",
		"127.0.0.1%00":               "the URL is not valid",
		"127.0.0.1\t":                "the URL is not valid",
		"media.example\\@127.0.0.1":  "the URL is not valid",
		"[127.0.0.1]":                "",
		"[::1]@":                     "",
	} {
		for _, form := range []string{"http://%s:%d/", "https://%s:%d/"} {
			got := rig.fail(fmt.Sprintf(form, host, port))
			if want != "" && got.Text != want {
				t.Errorf("host %q: %q (%v), want %q", host, got.Text, got.Cause, want)
			}
			if want == denied && got.Retryable {
				t.Errorf("host %q: a denied address counts as retryable", host)
			}
		}
	}
	for _, url := range []string{
		"file:///etc/passwd", "ftp://media.example/", "gopher://127.0.0.1/", "unix:///run/x", "//127.0.0.1/", "127.0.0.1", "",
		"http:", "http:127.0.0.1", "http:/127.0.0.1", "http:///127.0.0.1", "http://media.example:99999/", "http://media.example:-1/", "data:,x",
	} {
		rig.fail(url)
	}
}

// TestEscapesBySystemResolver is for the resolver of the C library, if this
// build has it: it takes more spellings for addresses than Go's own.
func TestEscapesBySystemResolver(t *testing.T) {
	c := newCanary(t, "tcp", "127.0.0.1:0")
	rig := newFetchRig(t, FetchOptions{Resolver: net.DefaultResolver, Limits: FetchLimits{Connect: 200 * time.Millisecond}}, "")
	for _, host := range []string{"localhost", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.0.0.1."} {
		rig.fail(fmt.Sprintf("http://%s:%d/", host, c.addr.Port()))
	}
}

func TestPortsOfPublicHosts(t *testing.T) {
	rig := newFetchRig(t, FetchOptions{}, "")
	for _, port := range []string{"22", "8080", "0"} {
		if got := rig.fail("http://93.184.216.34:" + port); got.Text != "the port is not allowed" || got.Retryable {
			t.Errorf("port %s: got %q, retryable %v", port, got.Text, got.Retryable)
		}
	}
}

func TestRedirectsToDeniedPlaces(t *testing.T) {
	c := newCanary(t, "tcp", "127.0.0.1:0")
	var code, to atomic.Value
	addr := rawServer(t, func(conn net.Conn, _ string) {
		fmt.Fprintf(conn, "HTTP/1.1 %d Go\r\nLocation: %s\r\n\r\n", code.Load(), to.Load())
	})
	rig := newFetchRig(t, FetchOptions{}, addr)
	for _, status := range []int{301, 302, 303, 307, 308} {
		code.Store(status)
		for target, want := range map[string]string{
			"http://" + c.addr.String() + "/":                           "the address is not allowed",
			"https://" + c.addr.String() + "/":                          "the address is not allowed",
			"//" + c.addr.String() + "/":                                "the address is not allowed",
			fmt.Sprintf("http://[::ffff:127.0.0.1]:%d/", c.addr.Port()): "the address is not allowed",
			fmt.Sprintf("http://①②⑦.0.0.1:%d/", c.addr.Port()):          "the address is not allowed",
			"http://169.254.169.254/latest/meta-data/":                  "the address is not allowed",
			"http://10.0.0.1/":                                          "the address is not allowed",
			"http://93.184.216.34:8080/":                                "the port is not allowed",
			"http://user:pass@" + addr + "/":                            "a URL with a user name or password is not fetched",
			"file:///etc/passwd":                                        "only http and https URLs are fetched",
			"ftp://" + addr + "/":                                       "only http and https URLs are fetched",
			"http:///etc/passwd":                                        "the URL names no host",
		} {
			to.Store(target)
			if got := rig.fail("http://" + addr + "/"); got.Text != want || got.Retryable {
				t.Errorf("%d to %s: %q, retryable %v; want %q", status, target, got.Text, got.Retryable, want)
			}
		}
	}
}

func TestProxyOfTheEnvironmentIsNotUsed(t *testing.T) {
	c := newCanary(t, "tcp", "127.0.0.1:0")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, "http://"+c.addr.String())
	}
	addr := rawServer(t, func(conn net.Conn, _ string) { io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nx") })
	rig := newFetchRig(t, FetchOptions{}, addr)
	blob, _, err := rig.fetcher.Fetch(t.Context(), "http://"+addr)
	if err != nil {
		t.Fatal(err)
	}
	blob.Close()
	rig.fail("http://media.example/")
	rig.fail("https://media.example/")
}

// nameServer answers every A question with what address says, and any other
// with nothing, over UDP.
func nameServer(t *testing.T, address func() []netip.Addr) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for query := make([]byte, 512); ; {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			conn.WriteTo(dnsAnswer(query[:n], address), from)
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	server := conn.LocalAddr().String()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server)
	}}
}

// dnsAnswer answers a query of one question (RFC 1035 section 4).
func dnsAnswer(query []byte, address func() []netip.Addr) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 {
		end += 1 + int(query[end])
	}
	end += 5 // the name's end, type and class
	answer := append([]byte{}, query[:end]...)
	binary.BigEndian.PutUint16(answer[2:], 0x8180) // an answer, recursion available
	clear(answer[6:header])
	if binary.BigEndian.Uint16(query[end-4:]) != typeA {
		return answer
	}
	for _, addr := range address() {
		answer[7]++
		answer = append(answer, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the question's name, lives 0 s
		answer = append(answer, addr.AsSlice()...)
	}
	return answer
}

// TestRebinding: a name alternates between an allowed address and a denied
// one, both of which would answer. Whatever a look-up said before the one for
// the connection must not count.
func TestRebinding(t *testing.T) {
	lookups := 10_000
	if testing.Short() {
		lookups = 1000
	}
	server, err := net.Listen("tcp", "127.0.0.2:0") // stands for a public address
	if err != nil {
		t.Skip("no second loopback address on this system: ", err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	defer func() {
		server.Close()
		<-served
	}()
	to := server.Addr().String()
	c := newCanary(t, "tcp", strings.Replace(to, "127.0.0.2", "127.0.0.1", 1))

	good, bad := netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.1")
	answers := [][]netip.Addr{{good}, {bad}, {bad, good}, {good, bad}}
	var asked atomic.Int64
	resolver := nameServer(t, func() []netip.Addr { return answers[asked.Add(1)%int64(len(answers))] })
	allow, err := ParseAllow("127.0.0.2/32")
	if err != nil {
		t.Fatal(err)
	}
	g := guard{allow: allow, dialer: net.Dialer{Resolver: resolver, Timeout: 10 * time.Second}}
	connected, denied := 0, 0
	for range lookups {
		conn, err := g.DialContext(t.Context(), "tcp", fmt.Sprintf("media.example:%d", c.addr.Port()))
		switch {
		case err == nil:
			if got := conn.RemoteAddr().String(); got != to {
				t.Errorf("connected to %s, want %s", got, to)
			}
			conn.Close()
			connected++
		case errors.Is(err, errAddressDenied):
			denied++
		default:
			t.Fatal(err)
		}
	}
	if connected < lookups/4 || denied < lookups/8 {
		t.Errorf("%d connected, %d denied: the name did not alternate", connected, denied)
	}
}

// TestAllowedName: the operator's own storage, at an address that is denied to
// every other name.
func TestAllowedName(t *testing.T) {
	addr := rawServer(t, func(conn net.Conn, _ string) { io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nx") })
	_, port, _ := net.SplitHostPort(addr)
	resolver := nameServer(t, func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("127.0.0.1")} })
	rig := newFetchRig(t, FetchOptions{Resolver: resolver}, "minio.example:"+port)
	blob, _, err := rig.fetcher.Fetch(t.Context(), "http://MinIO.example:"+port+"/bucket/x")
	if err != nil {
		t.Fatal(err)
	}
	blob.Close()
	if got := rig.fail("http://other.example:" + port); got.Text != "the address is not allowed" {
		t.Errorf("got %q", got.Text)
	}
}
