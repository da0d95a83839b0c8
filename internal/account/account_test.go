package account

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The secrets of the accounts in twoAccounts.
const (
	shopToken = "shop-token-0123456789"
	shopKey   = "shop key 0123456789"
	shopKey2  = "shop key the second"
	testToken = "test_token_0123456789"
	testKey   = "test key 0123456789"
)

// twoAccounts is a file with "shop", whose second key ends with the first minute
// of a synctest bubble's clock, and "test", which sends into the outbox.
func twoAccounts() string {
	return fmt.Sprintf(`{"accounts": [
		{"name": "shop", "token": %q, "keys": [{"key": %q}, {"key": %q, "notAfter": "2000-01-01T00:01:00Z"}]},
		{"name": "test", "token": %q, "keys": [{"key": %q, "notAfter": null}], "sender": "outbox"}
	]}`, sum(shopToken), sum(shopKey), sum(shopKey2), sum(testToken), sum(testKey))
}

func mustParse(t testing.TB, file string) Set {
	t.Helper()
	s, err := Parse([]byte(file))
	if err != nil {
		t.Fatalf("Parse: got error %q, want none", err)
	}
	return s
}

func TestLookup(t *testing.T) {
	r := NewRegistry(mustParse(t, twoAccounts()))
	shop, test := Account{Name: "shop"}, Account{Name: "test", Sender: Outbox}

	for name, c := range map[string]struct {
		token, key string
		want       Account // zero: refused
	}{
		"right pair":                   {shopToken, shopKey, shop},
		"right pair of another":        {testToken, testKey, test},
		"key past its time":            {shopToken, shopKey2, Account{}},
		"key of another account":       {shopToken, testKey, Account{}},
		"token of another account":     {testToken, shopKey, Account{}},
		"unknown key":                  {shopToken, "unknown key 0123456789", Account{}},
		"unknown token":                {"unknown-token-0123456789", shopKey, Account{}},
		"both unknown":                 {"unknown-token-0123456789", "unknown key 0123456789", Account{}},
		"key and token in wrong place": {shopKey, shopToken, Account{}},
		"no key":                       {shopToken, "", Account{}},
		"no token":                     {"", shopKey, Account{}},
		"neither":                      {"", "", Account{}},
		"digest instead of key":        {shopToken, sum(shopKey).String(), Account{}},
		"other case":                   {shopToken, strings.ToUpper(shopKey), Account{}},
		"key with a space after it":    {shopToken, shopKey + " ", Account{}},
	} {
		got, ok := r.Authenticate(c.token, c.key)
		if got != c.want || ok != (c.want != Account{}) {
			t.Errorf("Authenticate, %s: got %+v, %t, want %+v", name, got, ok, c.want)
		}
	}

	for name, c := range map[string]struct {
		key  string
		want Account
	}{
		"key of one":        {shopKey, shop},
		"key of another":    {testKey, test},
		"key past its time": {shopKey2, Account{}},
		"unknown key":       {"unknown key 0123456789", Account{}},
		"a token":           {shopToken, Account{}},
		"no key":            {"", Account{}},
	} {
		got, ok := r.ByKey(c.key)
		if got != c.want || ok != (c.want != Account{}) {
			t.Errorf("ByKey, %s: got %+v, %t, want %+v", name, got, ok, c.want)
		}
	}
}

func TestZeroRegistryLetsNobodyIn(t *testing.T) {
	for name, r := range map[string]*Registry{"zero Registry": new(Registry), "zero Set": NewRegistry(Set{})} {
		// The zero digest is what unused places hold; no text is known to have it.
		if a, ok := r.Authenticate("", ""); ok {
			t.Errorf("%s: Authenticate let %+v in", name, a)
		}
		if a, ok := r.ByKey(""); ok {
			t.Errorf("%s: ByKey let %+v in", name, a)
		}
		if got := r.Accounts(); len(got) != 0 {
			t.Errorf("%s: got accounts %+v, want none", name, got)
		}
	}
}

func TestUnusedPlacesMatchNothing(t *testing.T) {
	var e entry
	if e.opens(digest{}, time.Now()) {
		t.Error("the zero digest opens an entry without keys")
	}
}

func TestKeyEndsAfterNotAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // begins at 2000-01-01T00:00:00Z
		r := NewRegistry(mustParse(t, twoAccounts()))
		check := func(when string, want bool) {
			t.Helper()
			if _, got := r.Authenticate(shopToken, shopKey2); got != want {
				t.Errorf("Authenticate %s: got %t, want %t", when, got, want)
			}
			if _, got := r.ByKey(shopKey2); got != want {
				t.Errorf("ByKey %s: got %t, want %t", when, got, want)
			}
			if _, got := r.Authenticate(shopToken, shopKey); !got {
				t.Errorf("Authenticate %s with the key without an end: refused", when)
			}
		}
		check("before notAfter", true)
		time.Sleep(time.Minute)
		check("at notAfter", true)
		time.Sleep(time.Nanosecond)
		check("just after notAfter", false)
	})
}

func TestAccountsAreInOrderAndTheCallersOwn(t *testing.T) {
	r := NewRegistry(mustParse(t, twoAccounts()))
	got := r.Accounts()
	if want := []Account{{Name: "shop"}, {Name: "test", Sender: Outbox}}; !slices.Equal(got, want) {
		t.Fatalf("got accounts %v, want %v", got, want)
	}
	got[0].Name = "changed"
	if again := r.Accounts(); again[0].Name != "shop" {
		t.Errorf("after a caller changed its slice: got %q, want shop", again[0].Name)
	}
}

// Whichever Set is in force while lookups run, each sees the whole of one.
func TestReplaceDuringLookups(t *testing.T) {
	one, err := FromSecrets("one", "a key that stays the same", "the-token-of-both")
	if err != nil {
		t.Fatal(err)
	}
	two, err := FromSecrets("two", "a key that stays the same", "the-token-of-both")
	if err != nil {
		t.Fatal(err)
	}
	r := NewRegistry(one)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 500 {
				a, ok := r.Authenticate("the-token-of-both", "a key that stays the same")
				b, okB := r.ByKey("a key that stays the same")
				if !ok || !okB || len(r.Accounts()) != 1 {
					t.Errorf("lookup during Replace: got %+v %t, %+v %t", a, ok, b, okB)
					return
				}
			}
		})
	}
	for i := range 500 {
		r.Replace([]Set{one, two}[i%2])
	}
	wg.Wait()
	r.Replace(two)
	if a, _ := r.ByKey("a key that stays the same"); a.Name != "two" {
		t.Errorf("after Replace: got %q, want two", a.Name)
	}
}

// For any set of accounts, a token and a key go together exactly if they are of
// the same account and the key is not past its time.
func TestPairsOfRandomSets(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		type held struct {
			account, key string
			live         bool
		}
		var (
			s      Set
			tokens = map[string]string{} // account to token
			keys   []held
		)
		for i := range 1 + random.IntN(6) {
			name := fmt.Sprintf("account-%d", i)
			_, tokens[name] = Generate()
			var own []accessKey
			for range 1 + random.IntN(MaxKeys) {
				h := held{account: name, live: random.IntN(3) > 0}
				h.key, _ = Generate()
				k := accessKey{sum(h.key), forever}
				if !h.live {
					k.until = time.Now().Add(-time.Second)
				}
				own, keys = append(own, k), append(keys, h)
			}
			if err := s.add(Account{Name: name}, sum(tokens[name]), own); err != nil {
				t.Fatal(err)
			}
		}
		r := NewRegistry(s)
		for _, h := range keys {
			for name, token := range tokens {
				want := h.live && h.account == name
				if a, got := r.Authenticate(token, h.key); got != want || (got && a.Name != name) {
					t.Fatalf("token of %s, key of %+v: got %+v, %t, want %t", name, h, a, got, want)
				}
			}
			if a, got := r.ByKey(h.key); got != h.live || (got && a.Name != h.account) {
				t.Fatalf("ByKey of %+v: got %+v, %t", h, a, got)
			}
		}
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	r := NewRegistry(mustParse(b, twoAccounts()))
	for name, c := range map[string]struct{ token, key string }{
		"right":         {shopToken, shopKey},
		"wrong key":     {shopToken, testKey},
		"unknown token": {"shop-token-012345678X", shopKey},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Authenticate(c.token, c.key)
			}
		})
	}
}
