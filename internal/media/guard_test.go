package media

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

// TestDeniedPrefixes tries both ends of every denied block, what lies just
// outside, and both ends in every form that carries IPv4 inside IPv6.
func TestDeniedPrefixes(t *testing.T) {
	blocks := []struct {
		first, last   string
		before, after bool // denied as well, by a neighbouring block
	}{
		{"0.0.0.0", "0.255.255.255", true, false},
		{"10.0.0.0", "10.255.255.255", false, false},
		{"100.64.0.0", "100.127.255.255", false, false},
		{"127.0.0.0", "127.255.255.255", false, false},
		{"168.63.129.16", "168.63.129.16", false, false},
		{"169.254.0.0", "169.254.255.255", false, false},
		{"172.16.0.0", "172.31.255.255", false, false},
		{"192.0.0.0", "192.0.0.255", false, false},
		{"192.0.2.0", "192.0.2.255", false, false},
		{"192.88.99.0", "192.88.99.255", false, false},
		{"192.168.0.0", "192.168.255.255", false, false},
		{"198.18.0.0", "198.19.255.255", false, false},
		{"198.51.100.0", "198.51.100.255", false, false},
		{"203.0.113.0", "203.0.113.255", false, false},
		{"224.0.0.0", "239.255.255.255", false, true},
		{"240.0.0.0", "255.255.255.255", true, true},
		{"::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", true, false},
		{"2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", false, false},
		{"2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", false, false},
		{"2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, false},
		{"3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", false, false},
		{"4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", false, true},
	}
	for _, b := range blocks {
		first, last := netip.MustParseAddr(b.first), netip.MustParseAddr(b.last)
		for _, c := range []struct {
			addr   netip.Addr
			denied bool
		}{{first, true}, {last, true}, {first.Prev(), b.before}, {last.Next(), b.after}} {
			// Past the end of the address space lies the zero Addr.
			if want := c.denied || !c.addr.IsValid(); Denied(c.addr) != want {
				t.Errorf("block %s: Denied(%s) = %v, want %v", b.first, c.addr, !want, want)
			}
			if c.addr.Is4() {
				for form, addr := range wrapped(c.addr) {
					if !Denied(addr) {
						t.Errorf("block %s: Denied(%s, %s of %s) = false, want true", b.first, addr, form, c.addr)
					}
				}
			}
		}
	}
}

// wrapped is v4 inside IPv6, in every form that some host or router unwraps.
func wrapped(v4 netip.Addr) map[string]netip.Addr {
	b := v4.As4()
	form := func(prefix string, at int, invert byte) netip.Addr {
		all := netip.MustParseAddr(prefix).As16()
		for i := range b {
			all[at+i] = b[i] ^ invert
		}
		return netip.AddrFrom16(all)
	}
	return map[string]netip.Addr{
		"mapped":        form("::ffff:0:0", 12, 0),
		"compatible":    form("::", 12, 0),
		"translated":    form("::ffff:0:0:0", 12, 0),
		"NAT64":         form("64:ff9b::", 12, 0),
		"local NAT64":   form("64:ff9b:1::", 12, 0),
		"6to4":          form("2002::", 2, 0),
		"Teredo server": form("2001::", 4, 0),
		"Teredo client": form("2001:0:4136:e378::", 12, 0xff),
	}
}

func TestPublicNeighboursPass(t *testing.T) {
	for _, s := range []string{
		"1.0.0.0", "1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0",
		"126.255.255.255", "128.0.0.0", "168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0",
		"172.15.255.255", "172.32.0.0", "191.255.255.255", "192.0.1.0", "192.0.3.0", "192.88.98.255",
		"192.88.100.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "198.51.99.255",
		"198.51.101.0", "203.0.112.255", "203.0.114.0", "223.255.255.255",
		"2000::", "2000::1", "2001:200::", "2001:4860:4860::8888", "2001:db7:ffff::1", "2001:db9::", "2003::",
		"2606:4700:4700::1111", "2a00:1450:4001:82a::200e", "3ffe:ffff::1", "3fff:1000::",
	} {
		if Denied(netip.MustParseAddr(s)) {
			t.Errorf("Denied(%s) = true, want false", s)
		}
	}
}

func TestZonesAndTheZeroAddressAreDenied(t *testing.T) {
	for _, addr := range []netip.Addr{{}, netip.MustParseAddr("fe80::1%eth0"), netip.MustParseAddr("2606:4700::1%eth0")} {
		if !Denied(addr) {
			t.Errorf("Denied(%v) = false, want true", addr)
		}
	}
}

// deniedByNumbers is the deny list a second time, as integers and bounds.
func deniedByNumbers(addr netip.Addr) bool {
	if addr.Is4() {
		b := addr.As4()
		n := binary.BigEndian.Uint32(b[:])
		for _, r := range [][2]uint32{
			{0, 0x00ffffff}, {0x0a000000, 0x0affffff}, {0x64400000, 0x647fffff}, {0x7f000000, 0x7fffffff},
			{0xa83f8110, 0xa83f8110}, {0xa9fe0000, 0xa9feffff}, {0xac100000, 0xac1fffff}, {0xc0000000, 0xc00000ff},
			{0xc0000200, 0xc00002ff}, {0xc0586300, 0xc05863ff}, {0xc0a80000, 0xc0a8ffff}, {0xc6120000, 0xc613ffff},
			{0xc6336400, 0xc63364ff}, {0xcb007100, 0xcb0071ff}, {0xe0000000, 0xffffffff},
		} {
			if r[0] <= n && n <= r[1] {
				return true
			}
		}
		return false
	}
	b := addr.As16()
	hi := binary.BigEndian.Uint64(b[:8])
	switch {
	case hi>>61 != 1: // not 2000::/3
		return true
	case hi>>41 == 0x20010000>>9: // 2001::/23
		return true
	case hi>>32 == 0x20010db8, hi>>48 == 0x2002, hi>>44 == 0x3fff0:
		return true
	}
	return false
}

// TestDeniedAgreesWithNumbers asks both implementations about a million
// addresses, most of them near the denied blocks.
func TestDeniedAgreesWithNumbers(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	blocks := append(append([]netip.Prefix{globalUnicast}, deniedIPv4...), deniedIPv6...)
	denied := 0
	for i := range 1_000_000 {
		var addr netip.Addr
		switch i % 4 {
		case 0:
			addr = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, random.Uint32())))
		case 1:
			addr = randomIPv6(random)
		default: // a block's own bits, one of the leading ones perhaps flipped, the rest random
			block := blocks[random.IntN(len(blocks))]
			raw, noise := block.Addr().AsSlice(), randomIPv6(random).As16()
			for bit := block.Bits(); bit < len(raw)*8; bit++ {
				raw[bit/8] |= noise[bit/8] & (0x80 >> (bit % 8))
			}
			if flip := random.IntN(2 * block.Bits()); flip < block.Bits() {
				raw[flip/8] ^= 0x80 >> (flip % 8)
			}
			addr, _ = netip.AddrFromSlice(raw)
		}
		want := deniedByNumbers(addr)
		if got := Denied(addr); got != want {
			t.Fatalf("seed %d: Denied(%s) = %v, want %v", seed, addr, got, want)
		}
		if want {
			denied++
		}
	}
	if denied < 300_000 || denied > 900_000 {
		t.Errorf("%d of 1000000 addresses are denied: the sample says little", denied)
	}
}

func randomIPv6(random *rand.Rand) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], random.Uint64())
	binary.BigEndian.PutUint64(b[8:], random.Uint64())
	return netip.AddrFrom16(b)
}

func FuzzDenied(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1})
	f.Fuzz(func(t *testing.T, raw []byte) {
		addr, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		if got, want := Denied(addr), deniedByNumbers(addr); got != want {
			t.Errorf("Denied(%s) = %v, want %v", addr, got, want)
		}
	})
}

func TestJudge(t *testing.T) {
	tests := []struct {
		name, allow, host, dialled string
		want                       error
	}{
		{"public, http", "", "example.com", "93.184.216.34:80", nil},
		{"public, https", "", "example.com", "[2606:4700::1]:443", nil},
		{"public, another port", "", "example.com", "93.184.216.34:8080", errPortDenied},
		{"loopback", "", "example.com", "127.0.0.1:80", errAddressDenied},
		{"mapped loopback", "", "example.com", "[::ffff:127.0.0.1]:80", errAddressDenied},
		{"zone", "", "example.com", "[fe80::1%eth0]:80", errAddressDenied},
		{"zone inside an allowed block", "fe80::/10", "example.com", "[fe80::1%eth0]:80", errAddressDenied},
		{"not an address", "", "example.com", "example.com:80", errAddressDenied},
		{"no port", "", "example.com", "93.184.216.34", errAddressDenied},
		{"empty", "0.0.0.0/0,::/0", "", "", errAddressDenied},
		{"allowed name, web port", "minio", "minio", "10.0.0.5:80", nil},
		{"allowed name, TLS port", "minio", "minio", "10.0.0.5:443", nil},
		{"allowed name, another port", "minio", "minio", "10.0.0.5:9000", errAddressDenied},
		{"allowed name and port", "minio:9000", "minio", "10.0.0.5:9000", nil},
		{"allowed name and port, web port", "minio:9000", "minio", "10.0.0.5:80", errAddressDenied},
		{"public name, allowed port", "cdn.example:8443", "cdn.example", "93.184.216.34:8443", nil},
		{"another name at an allowed name's address", "minio:9000", "evil.example", "10.0.0.5:9000", errAddressDenied},
		{"a name that ends like an allowed one", "minio", "evil-minio", "10.0.0.5:80", errAddressDenied},
		{"allowed address", "10.0.0.5:9000", "any.example", "10.0.0.5:9000", nil},
		{"allowed address, another port", "10.0.0.5:9000", "any.example", "10.0.0.5:9001", errAddressDenied},
		{"allowed address without port", "10.0.0.5", "any.example", "10.0.0.5:443", nil},
		{"allowed IPv6 address and port", "[fd00::5]:9000", "any.example", "[fd00::5]:9000", nil},
		{"allowed bare IPv6 address", "fd00::5", "any.example", "[fd00::5]:80", nil},
		{"allowed block, any port", "10.0.0.0/8", "any.example", "10.1.2.3:9000", nil},
		{"beside an allowed block", "10.0.0.0/16", "any.example", "10.1.0.0:80", errAddressDenied},
		{"mapped address of an allowed block", "10.0.0.0/8", "any.example", "[::ffff:10.1.2.3]:80", errAddressDenied},
		{"second of two rules", "minio, 10.0.0.0/8", "any.example", "10.1.2.3:80", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			allow, err := ParseAllow(tt.allow)
			if err != nil {
				t.Fatal(err)
			}
			g := guard{allow: allow}
			if got := g.judge(canonicalHost(tt.host), tt.dialled); !errors.Is(got, tt.want) {
				t.Errorf("judge(%q, %q) = %v, want %v", tt.host, tt.dialled, got, tt.want)
			}
		})
	}
}

func TestParseAllow(t *testing.T) {
	for _, good := range []string{
		"", " ", "minio", "MinIO.storage.svc.", "my_host:1", "a,b:9000 , 10.0.0.0/8", "[fd00::1]:9000", "[fd00::1]", "fd00::1", "fd00::/8", "10.0.0.1:65535",
	} {
		if _, err := ParseAllow(good); err != nil {
			t.Errorf("ParseAllow(%q) = %v, want no error", good, err)
		}
	}
	for bad, say := range map[string]string{
		"a,,b":                  "empty",
		"a,":                    "empty",
		"http://minio":          "is a URL",
		"minio/path":            "CIDR",
		"10.0.0.0/33":           "CIDR",
		"10.0.0.1/8":            "write 10.0.0.0/8",
		"::ffff:10.0.0.0/104":   "CIDR",
		"::ffff:10.0.0.1":       "its own form",
		"fe80::1%eth0":          "without a zone",
		"minio:":                "port",
		"minio:0":               "port",
		"minio:65536":           "port",
		"minio:http":            "port",
		"a:b:c":                 "neither",
		"*.example.com":         "neither",
		"user@minio":            "neither",
		"bücher.example":        "neither",
		"127.1":                 "neither",
		"2130706433":            "neither",
		"0x7f000001":            "neither",
		"a..b":                  "neither",
		".":                     "neither",
		strings.Repeat("a", 64): "neither",
	} {
		_, err := ParseAllow(bad)
		if err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("ParseAllow(%q) = %v, want an error with %q", bad, err, say)
		}
	}
}

func FuzzParseAllow(f *testing.F) {
	for _, s := range []string{"minio:9000", "10.0.0.0/8", "[fd00::1]:80,x", "0x7f000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		allow, err := ParseAllow(list)
		if err != nil {
			return
		}
		for _, r := range allow.rules {
			if (r.host == "") == !r.prefix.IsValid() {
				t.Errorf("ParseAllow(%q): rule %+v is not for exactly one of a name and a block", list, r)
			}
		}
	})
}

func BenchmarkDenied(b *testing.B) {
	addr := netip.MustParseAddr("93.184.216.34")
	for b.Loop() {
		if Denied(addr) {
			b.Fatal(fmt.Sprint(addr, " is denied"))
		}
	}
}
