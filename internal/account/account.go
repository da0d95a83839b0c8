// Package account knows who may send: it reads accounts from secrets or from a
// file of digests, and finds the account that a token and a key belong to.
//
// A token stands in the path of a send and tells accounts apart; a key stands in
// a header and proves the right to use one. Only their SHA-256 digests are kept.
// Plain SHA-256 is enough for secrets of the kind Generate makes: 160 random
// bits cannot be guessed, however fast the digest is. It would not be enough
// for words that a person thought up.
package account

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// Account is what may be known of an account outside of this package. Its only
// secrets are its Credentials.
type Account struct {
	Name     string       // fit for a path segment and a log field; unique in a Set
	Sender   string       // Outbox or WhatsApp; "": the process's default
	WhatsApp *Credentials // nil: the process's, if it has any

	RatePerSecond float64       // most deliveries a second; 0: not paced
	RecipientGap  time.Duration // least time between deliveries to one number; 0: none
}

// The senders an account may choose.
const (
	Outbox   = "outbox"
	WhatsApp = "whatsapp"
)

// MaxKeys is how many keys one account may have. Two are enough to rotate; every
// lookup costs as many comparisons as there could be.
const MaxKeys = 8

// Set is a group of accounts in which all names, tokens and keys differ. It does
// not change once it is made, so copies may be shared. The zero Set has no
// account and lets nobody in.
type Set struct {
	accounts []Account       // in the order of their file
	names    map[string]bool // of accounts
	byToken  map[digest]*entry
	byKey    map[digest]*entry
}

// Accounts returns all accounts, in the order of their file. The caller may
// change the slice.
func (s Set) Accounts() []Account { return slices.Clone(s.accounts) }

type digest [sha256.Size]byte

func sum(secret string) digest { return sha256.Sum256([]byte(secret)) }

// entry is an account with its keys. The zero entry has none, so no key matches it.
type entry struct {
	account Account
	keys    [MaxKeys]accessKey
}

// accessKey is one key of an account. The zero accessKey is an unused place: its time ran
// out in the year 1.
type accessKey struct {
	digest digest
	until  time.Time // the last moment at which it matches
}

// forever is the until of a key without an end: the last second that RFC 3339
// can write.
var forever = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// add puts an account into a Set that is being made. keys holds 1 to MaxKeys
// keys, in the order in which an error counts them. After an error the Set is
// not to be used.
func (s *Set) add(a Account, token digest, keys []accessKey) error {
	if s.byToken == nil {
		s.names = make(map[string]bool)
		s.byToken = make(map[digest]*entry)
		s.byKey = make(map[digest]*entry)
	}
	if s.names[a.Name] {
		return errors.New("name is used twice")
	}
	if other, taken := s.byToken[token]; taken {
		return fmt.Errorf("token is also that of account %q", other.account.Name)
	}
	e := &entry{account: a}
	for i, k := range keys {
		// ByKey has nothing but the key, so a key must lead to one account.
		if other, taken := s.byKey[k.digest]; taken {
			return fmt.Errorf("keys[%d]: key is also a key of account %q", i, other.account.Name)
		}
		s.byKey[k.digest] = e
		e.keys[i] = k
	}
	s.names[a.Name] = true
	s.byToken[token] = e
	s.accounts = append(s.accounts, a)
	return nil
}

// Registry holds the Set in force. All methods may be called at any time from
// any goroutine. The zero Registry holds the zero Set.
type Registry struct {
	set atomic.Pointer[Set]
}

// NewRegistry makes a Registry with s in force.
func NewRegistry(s Set) *Registry {
	r := new(Registry)
	r.Replace(s)
	return r
}

// Replace puts s in force for every lookup that begins afterwards.
func (r *Registry) Replace(s Set) { r.set.Store(&s) }

func (r *Registry) current() *Set {
	if s := r.set.Load(); s != nil {
		return s
	}
	return new(Set)
}

// Accounts returns all accounts in force; see Set.Accounts.
func (r *Registry) Accounts() []Account { return r.current().Accounts() }

// Authenticate returns the account that token belongs to, if key is one of its
// keys and not past its time.
//
// What a caller can learn from the time it takes: nothing of any secret that is
// held, nor whether it was the token or the key that was wrong, as far as this
// package can see to it. Hashing takes as long as what the caller sent is long.
// Then follow MaxKeys comparisons, each in constant time, whether or not the
// token is known and however many keys there are. Not constant is the map
// lookup before them, and what the caches of the processor make of it: it can
// only depend on the digest of what was sent, of which nobody can choose the
// bits in order to feel their way towards one that is held.
func (r *Registry) Authenticate(token, key string) (Account, bool) {
	return find(r.current().byToken, sum(token), sum(key))
}

// ByKey returns the account that key belongs to, if key is not past its time. It
// is for routes without a token. What Authenticate says of time holds here too.
func (r *Registry) ByKey(key string) (Account, bool) {
	d := sum(key)
	return find(r.current().byKey, d, d)
}

// find returns the account that entries has under index, if key opens it. An
// unknown index compares with an entry that has no keys, to take as long as a
// known one.
func find(entries map[digest]*entry, index, key digest) (Account, bool) {
	var nobody entry
	e := &nobody
	if known, ok := entries[index]; ok {
		e = known
	}
	if !e.opens(key, time.Now()) {
		return Account{}, false
	}
	return e.account, true
}

// opens reports whether d is a key of e that matches at the time now. It goes
// through all places, without stopping at the first that matches.
func (e *entry) opens(d digest, now time.Time) bool {
	found := 0
	for i := range e.keys {
		k := &e.keys[i]
		equal := subtle.ConstantTimeCompare(k.digest[:], d[:])
		inTime := 0
		if !now.After(k.until) {
			inTime = 1
		}
		found |= equal & inTime
	}
	return found == 1
}
