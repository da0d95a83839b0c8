// Package clientaddr finds out which address a request really comes from when
// there are reverse proxies in between.
package clientaddr

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// Proxies are the reverse proxies whose X-Forwarded-For is believed. The zero
// value believes nobody.
type Proxies struct{ trusted []netip.Prefix }

// Parse reads CIDRs and single addresses with commas between them; an empty text
// is nobody.
func Parse(text string) (Proxies, error) {
	var p Proxies
	if strings.TrimSpace(text) == "" {
		return p, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		prefix, err := netip.ParsePrefix(part)
		if addr, bad := netip.ParseAddr(part); bad == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil:
			return Proxies{}, fmt.Errorf("%q is neither an address nor a CIDR such as 10.0.0.0/8", part)
		case prefix.Addr().Is4In6():
			return Proxies{}, fmt.Errorf("%q is an IPv4 address in IPv6 form; write it as IPv4", part)
		}
		p.trusted = append(p.trusted, prefix.Masked())
	}
	return p, nil
}

func (p Proxies) trusts(addr netip.Addr) bool {
	for _, prefix := range p.trusted {
		if prefix.Contains(addr) {
			return true
		}
	}
	return false
}

// Of returns the address of the client of r: the nearest one that is not a
// trusted proxy. X-Forwarded-For is read from its end, where the nearest proxy
// has written, and only as far as trusted proxies vouch for it; what a client
// itself put at its beginning does not count. Where an entry is no address, the
// proxy that passed it on is the last one that is known. It is invalid when the
// connection has no IP address, as in a test.
//
// The standard Forwarded header (RFC 7239) is not read: two headers that may
// disagree are one too many, and every proxy writes this one.
func (p Proxies) Of(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	client := plain(peer.Addr())
	lines := r.Header["X-Forwarded-For"]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; {
			if !p.trusts(client) {
				return client
			}
			var entry string
			entry, rest, more = lastEntry(rest)
			addr, ok := parseEntry(entry)
			if !ok {
				return client
			}
			client = addr
		}
	}
	return client
}

// lastEntry cuts the last entry off a list; more: something is before it.
func lastEntry(list string) (entry, before string, more bool) {
	comma := strings.LastIndexByte(list, ',')
	if comma < 0 {
		return list, "", false
	}
	return list[comma+1:], list[:comma], true
}

// parseEntry reads an address, also one with a port, as some proxies write it.
func parseEntry(entry string) (netip.Addr, bool) {
	entry = strings.Trim(entry, " \t")
	if addr, err := netip.ParseAddr(entry); err == nil {
		return plain(addr), true
	}
	if withPort, err := netip.ParseAddrPort(entry); err == nil {
		return plain(withPort.Addr()), true
	}
	return netip.Addr{}, false
}

// plain is an address as it is compared and logged: IPv4 as IPv4, without a zone.
func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }
