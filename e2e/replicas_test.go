package e2e

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// replica is one service of several, with accounts that only it has.
type replica struct {
	*service
	address  string
	accounts []string // names; keys and tokens are made of them
	args     []string
}

func keyOf(account string) string   { return "key-of-the-account-" + account }
func tokenOf(account string) string { return "token_of_the_account_" + account }

func digestOf(secret string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(secret))) }

func startReplica(t *testing.T, accounts ...string) *replica {
	t.Helper()
	type entry map[string]any
	var entries []entry
	for _, name := range accounts {
		entries = append(entries, entry{"name": name, "token": digestOf(tokenOf(name)), "keys": []entry{{"key": digestOf(keyOf(name))}}})
	}
	content, err := json.Marshal(entry{"accounts": entries})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "accounts.json")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replica{accounts: accounts, args: []string{"-accounts", file, "-trusted-proxies", "127.0.0.1", "-outbox-messages", "1000000"}}
	r.service = start(t, filepath.Join(dir, "data"), nil, r.args...)
	r.address = strings.TrimPrefix(r.url, "http://")
	return r
}

// again starts the replica where it was, with the data it had.
func (r *replica) again(t *testing.T) {
	t.Helper()
	r.service = start(t, r.data, nil, append(r.args, "-addr", r.address)...)
}

// sent is what the account's outbox has, oldest first.
func (r *replica) sent(account string) []record {
	r.t.Helper()
	request, err := http.NewRequest("GET", r.url+"/outbox/messages", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("apikey", keyOf(account))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	defer response.Body.Close()
	var list struct{ Messages []record }
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil || response.StatusCode != 200 {
		r.t.Fatalf("the outbox of %s answered %d (%v)", account, response.StatusCode, err)
	}
	return list.Messages
}

// startReplicas starts three replicas and HAProxy in front of them.
func startReplicas(t *testing.T) ([]*replica, *proxy) {
	t.Helper()
	replicas := []*replica{startReplica(t, "shop", "bank"), startReplica(t, "club"), startReplica(t, "news")}
	var pins bytes.Buffer
	replace := []string{"inter 1s", "inter 200ms"} // so that the test need not wait
	for i, r := range replicas {
		for _, name := range r.accounts {
			fmt.Fprintf(&pins, "%s replica-%d\n%s replica-%d\n", digestOf(tokenOf(name)), i, name, i)
		}
		replace = append(replace, fmt.Sprintf("10.0.0.1%d:8080", i), r.address)
	}
	fmt.Fprintf(&pins, "%s paused\nmoving paused\n", digestOf(tokenOf("moving")))
	file := filepath.Join(t.TempDir(), "replicas.map")
	if err := os.WriteFile(file, pins.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return replicas, startHAProxy(t, "haproxy-replicas.cfg", append(replace, "/etc/haproxy/replicas.map", file)...)
}

// sendAs sends a text with an Idempotency-Key.
func (p *proxy) sendAs(account, number, mark string) (answer, http.Header, error) {
	r, err := http.NewRequest("POST", p.url+"/message/sendText/"+tokenOf(account), textTo(number, 0, mark))
	if err != nil {
		return answer{}, nil, err
	}
	r.Header = http.Header{"Apikey": {keyOf(account)}, "Content-Type": {"application/json"}, "Idempotency-Key": {number + "/" + strings.ReplaceAll(mark, " ", "-")}}
	return p.do(r)
}

// A replica is killed and started again under load, twice. Its clients repeat with
// the same key what they have no answer to; nothing is sent twice, nothing that was
// acknowledged is lost, and every number gets its messages in order. The accounts of
// the other replicas see nothing of it.
func TestReplicaKilledUnderLoad(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	replicas, p := startReplicas(t)
	victim := replicas[0]

	const workers = 4 // of each account, each with a number of its own
	type outcome struct {
		acknowledged []string
		unknown      []string // the service itself says that it does not know
		answers      map[string]int
	}
	var stop atomic.Bool
	outcomes := map[string]*outcome{} // by account and number
	var wait sync.WaitGroup
	for i, r := range replicas {
		for _, name := range r.accounts {
			for w := range workers {
				number := fmt.Sprintf("1555%d%02d%04d", i, w, len(name))
				o := &outcome{answers: map[string]int{}}
				outcomes[name+" "+number] = o
				wait.Go(func() {
					for n := 0; !stop.Load(); n++ {
						for mark, again := fmt.Sprint(n), true; again; {
							a, h, err := p.sendAs(name, number, mark)
							if err != nil {
								t.Errorf("account %s got no whole answer: %v", name, err)
								return
							}
							o.answers[fmt.Sprint(a.Status, " ", a.Error.Code)]++
							switch {
							case a.Status == 200:
								o.acknowledged = append(o.acknowledged, mark)
								again = false
							case a.Error.Retryable:
								if a.Status == 503 && h.Get("Retry-After") == "" {
									t.Errorf("503 without Retry-After: %+v", a)
								}
								time.Sleep(50 * time.Millisecond)
							case a.Error.Code == "delivery_unknown":
								o.unknown = append(o.unknown, mark)
								again = false
							default:
								t.Errorf("account %s got %d %+v", name, a.Status, a)
								return
							}
						}
					}
				})
			}
		}
	}
	for range 2 {
		time.Sleep(time.Second)
		victim.kill()
		time.Sleep(500 * time.Millisecond)
		victim.again(t)
	}
	time.Sleep(1500 * time.Millisecond)
	stop.Store(true)
	wait.Wait()

	total, unknown, duplicates, told := 0, 0, 0, map[string]int{}
	for _, r := range replicas {
		for _, name := range r.accounts {
			delivered := map[string][]string{}
			for _, m := range r.sent(name) {
				delivered[m.Number] = append(delivered[m.Number], m.Text)
			}
			for who, o := range outcomes {
				number, ours := strings.CutPrefix(who, name+" ")
				if !ours {
					continue
				}
				got := delivered[number]
				once := slices.Compact(slices.Clone(got))
				duplicates += len(got) - len(once)
				once = slices.DeleteFunc(once, func(mark string) bool { return slices.Contains(o.unknown, mark) })
				if !slices.Equal(once, o.acknowledged) {
					t.Errorf("%s: the outbox has %d messages, %d were acknowledged, or their order is another", who, len(once), len(o.acknowledged))
				}
				if len(o.acknowledged) == 0 {
					t.Errorf("%s: nothing was sent", who)
				}
				total += len(o.acknowledged)
				unknown += len(o.unknown)
				for code, n := range o.answers {
					if r == victim {
						told[code] += n
					} else if code != "200 " {
						t.Errorf("%s, whose replica was not killed, got %s", who, code)
					}
				}
			}
		}
	}
	if duplicates > 0 {
		t.Errorf("%d messages were sent twice, want 0", duplicates)
	}
	if told["503 unavailable"] == 0 {
		t.Errorf("the accounts of the killed replica got %v, want some 503 unavailable", told)
	}
	t.Logf("measured: two kills of one of three replicas: %d acknowledged, 0 lost, %d sent twice, %d unknown; its accounts got %v", total, duplicates, unknown, told)
}

// An account is nowhere but on its replica, and what is not on the map is refused.
func TestAccountsArePinned(t *testing.T) {
	need(t, "haproxy")
	t.Parallel()
	replicas, p := startReplicas(t)
	for i, r := range replicas {
		for _, name := range r.accounts {
			if a, _, err := p.sendAs(name, number, "hello"); err != nil || a.Status != 200 {
				t.Errorf("account %s on replica %d: got %+v %v, want 200", name, i, a, err)
			}
			if got := r.sent(name); len(got) != 1 {
				t.Errorf("replica %d has %d messages of %s, want 1", i, len(got), name)
			}
		}
	}
	if a, _, err := p.sendAs("nobody", number, "hello"); err != nil || a.Status != 401 || a.Error.Code != "unauthorized" {
		t.Errorf("an account on no replica: got %d %+v %v, want 401", a.Status, a, err)
	}
	if a, h, err := p.sendAs("moving", number, "hello"); err != nil || a.Status != 503 || a.Error.Code != "unavailable" || h.Get("Retry-After") == "" {
		t.Errorf("an account that is paused: got %d %+v %v, want 503 unavailable", a.Status, a, err)
	}

	// The webhook goes where the account is, by its name. None of these accounts has
	// one, so that the answer is 404, and the log says who gave it.
	for _, r := range replicas[1:] {
		response, err := p.client.Get(p.url + "/webhook/whatsapp/" + r.accounts[0])
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		id := response.Header.Get("X-Request-Id")
		r.kill()
		if response.StatusCode != 404 || !strings.Contains(r.stderr.String(), id) {
			t.Errorf("the webhook of %s: got %d from another replica, want 404 from its own", r.accounts[0], response.StatusCode)
		}
		// Nobody stands in for it.
		a, h, err := p.sendAs(r.accounts[0], number, "hello")
		if err != nil || a.Status != 503 || a.Error.Code != "unavailable" || !a.Error.Retryable || h.Get("Retry-After") == "" {
			t.Errorf("while its replica is down, %s got %d %+v %v, want 503 unavailable", r.accounts[0], a.Status, a, err)
		}
	}
	if a, _, err := p.sendAs("shop", number, "still there"); err != nil || a.Status != 200 {
		t.Errorf("an account of a replica that is up: got %+v %v, want 200", a, err)
	}
}
