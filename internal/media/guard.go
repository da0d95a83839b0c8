package media

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"syscall"
)

// What the guard says of a connection it does not let happen.
var (
	errAddressDenied = errors.New("the address is not allowed")
	errPortDenied    = errors.New("the port is not allowed")
)

// deniedIPv4 is every IPv4 block that is not for one public host: the IANA
// special-purpose registry (RFC 6890), multicast and the reserved rest.
var deniedIPv4 = prefixes(
	"0.0.0.0/8",       // this network, RFC 791; 0.0.0.0 is this host on Linux
	"10.0.0.0/8",      // private, RFC 1918
	"100.64.0.0/10",   // carrier-grade NAT, RFC 6598; one cloud's metadata is 100.100.100.200
	"127.0.0.0/8",     // loopback, RFC 1122
	"169.254.0.0/16",  // link-local, RFC 3927; the metadata of most clouds
	"172.16.0.0/12",   // private, RFC 1918
	"192.0.0.0/24",    // IETF protocol assignments, RFC 6890
	"192.0.2.0/24",    // documentation, RFC 5737
	"192.88.99.0/24",  // 6to4 relays, RFC 7526
	"192.168.0.0/16",  // private, RFC 1918
	"198.18.0.0/15",   // benchmarks, RFC 2544
	"198.51.100.0/24", // documentation, RFC 5737
	"203.0.113.0/24",  // documentation, RFC 5737
	"224.0.0.0/4",     // multicast, RFC 5771
	"240.0.0.0/4",     // reserved, RFC 1112, with the broadcast address, RFC 919

	// Public by its number only: in Azure it is the host's own agent, which
	// hands out a machine's configuration. No RFC; from Microsoft's manual.
	"168.63.129.16/32",
)

// globalUnicast is all of IPv6 that is given out to public hosts (RFC 4291
// section 2.4 and IANA's registry). What lies outside is denied as a whole:
// loopback, link-local, unique local, multicast, and IPv4 in its mapped
// (::ffff:0:0/96), compatible (::/96, RFC 4291) and NAT64 forms (64:ff9b::/96,
// RFC 6052; 64:ff9b:1::/48, RFC 8215). A public IPv4 host has no need of them.
var globalUnicast = netip.MustParsePrefix("2000::/3")

// deniedIPv6 is what is denied inside globalUnicast.
var deniedIPv6 = prefixes(
	"2001::/23",     // IETF protocol assignments, RFC 2928; Teredo's 2001::/32 (RFC 4380) carries IPv4
	"2001:db8::/32", // documentation, RFC 3849
	"2002::/16",     // 6to4, RFC 3056: carries IPv4
	"3fff::/20",     // documentation, RFC 9637
)

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, s := range list {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// Denied reports whether addr is anything but a public unicast address without
// a zone. The zero Addr is denied.
func Denied(addr netip.Addr) bool {
	if addr.Is4() {
		return inAny(deniedIPv4, addr)
	}
	// Prefix.Contains holds for no address with a zone and for no zero Addr.
	return !globalUnicast.Contains(addr) || inAny(deniedIPv6, addr)
}

func inAny(list []netip.Prefix, addr netip.Addr) bool {
	for _, p := range list {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// AllowList is what may be reached besides public addresses on the ports 80
// and 443. The zero AllowList adds nothing.
type AllowList struct {
	rules []allowRule
}

// allowRule allows either one host name or one block of addresses.
type allowRule struct {
	host    string       // lower case, no final dot; empty: prefix judges
	prefix  netip.Prefix // judges the dialled address
	port    uint16       // 0: 80 and 443
	anyPort bool
}

// ParseAllow reads a list of HOST, HOST:PORT and CIDR with commas between them.
//
//   - HOST allows whatever the name resolves to, on the ports 80 and 443;
//     HOST:PORT on that port.
//   - An IP address in place of HOST allows that address, by whatever name it
//     was reached; an IPv6 address with a port stands in brackets.
//   - CIDR allows the addresses in it, on every port.
//
// A rule for a name trusts whoever answers for that name. The empty string is
// the empty list.
func ParseAllow(list string) (AllowList, error) {
	var allow AllowList
	if strings.TrimSpace(list) == "" {
		return allow, nil
	}
	for entry := range strings.SplitSeq(list, ",") {
		entry = strings.TrimSpace(entry)
		rule, err := parseAllowRule(entry)
		if err != nil {
			return AllowList{}, fmt.Errorf("%q: %w", entry, err)
		}
		allow.rules = append(allow.rules, rule)
	}
	return allow, nil
}

func parseAllowRule(entry string) (allowRule, error) {
	switch {
	case entry == "":
		return allowRule{}, errors.New("an entry is empty")
	case strings.Contains(entry, "://"):
		return allowRule{}, errors.New("is a URL; write HOST, HOST:PORT or CIDR")
	case strings.Contains(entry, "/"):
		return parseAllowPrefix(entry)
	}
	host, port := entry, uint16(0)
	if h, p, err := net.SplitHostPort(entry); err == nil { // never for a bare IPv6 address
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return allowRule{}, errors.New("the port is not a number from 1 to 65535")
		}
		host, port = h, uint16(n)
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if addr, err := netip.ParseAddr(host); err == nil {
		if addr.Zone() != "" || addr.Is4In6() {
			return allowRule{}, errors.New("write the address without a zone, and IPv4 in its own form")
		}
		return allowRule{prefix: netip.PrefixFrom(addr, addr.BitLen()), port: port}, nil
	}
	host = canonicalHost(host)
	if !isHostName(host) {
		return allowRule{}, errors.New("is neither a host name (in ASCII) nor an IP address")
	}
	return allowRule{host: host, port: port}, nil
}

func parseAllowPrefix(entry string) (allowRule, error) {
	prefix, err := netip.ParsePrefix(entry)
	switch {
	case err != nil || prefix.Addr().Is4In6():
		return allowRule{}, errors.New("is not a CIDR block such as 10.0.0.0/8 or fd00::/8")
	case prefix != prefix.Masked():
		return allowRule{}, fmt.Errorf("has bits beyond its length; write %s", prefix.Masked())
	}
	return allowRule{prefix: prefix, anyPort: true}, nil
}

func canonicalHost(host string) string {
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// isHostName holds for labels of letters, digits, "-" and "_". A last label of
// digits only is an address in one of its odd spellings (127.1), so no name.
func isHostName(host string) bool {
	const maxName, maxLabel = 253, 63 // RFC 1035 section 2.3.4
	if len(host) > maxName {
		return false
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > maxLabel {
			return false
		}
		for _, c := range []byte(label) {
			letter := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_'
			if !letter {
				return false
			}
		}
		last = label
	}
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

func (r allowRule) allows(host string, dialled netip.AddrPort) bool {
	if r.host != "" {
		if r.host != host {
			return false
		}
	} else if !r.prefix.Contains(dialled.Addr()) {
		return false
	}
	if r.anyPort {
		return true
	}
	if r.port == 0 {
		return isWebPort(dialled.Port())
	}
	return r.port == dialled.Port()
}

func isWebPort(port uint16) bool { return port == 80 || port == 443 }

// guard makes connections to allowed addresses only. It judges the address
// that is about to be dialled, after every spelling, IDNA mapping and name
// look-up: there is no moment between the check and the use at which a name
// could change.
type guard struct {
	allow  AllowList
	dialer net.Dialer // with the resolver and the time limit of a connection
}

// DialContext is for http.Transport; addr holds the host as the URL names it.
func (g *guard) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if host == "" { // which Dialer takes for this host
		return nil, errAddressDenied
	}
	dialer := g.dialer
	dialer.ControlContext = func(_ context.Context, _, dialled string, _ syscall.RawConn) error {
		return g.judge(canonicalHost(host), dialled)
	}
	return dialer.DialContext(ctx, network, addr)
}

// judge decides over one connection: nil lets it happen. A dialled address
// that does not parse, or that has a zone, is refused whatever the allow-list says.
func (g *guard) judge(host, dialled string) error {
	to, err := netip.ParseAddrPort(dialled)
	if err != nil || to.Addr().Zone() != "" {
		return errAddressDenied
	}
	for _, rule := range g.allow.rules {
		if rule.allows(host, to) {
			return nil
		}
	}
	if Denied(to.Addr()) {
		return errAddressDenied
	}
	if !isWebPort(to.Port()) {
		return errPortDenied
	}
	return nil
}
