package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// alerts are the rules that operators are given.
const alerts = "../deploy/alerts.yml"

// scrape fetches the metrics of a service, whose names and values it makes sure
// hold nothing that is secret.
func (s *service) scrape() string {
	s.t.Helper()
	status, content := s.get("/metrics")
	if status != 200 {
		s.t.Fatalf("GET /metrics: got %d %.200s, want 200", status, content)
	}
	for _, secret := range []string{key, token, number} {
		if bytes.Contains(content, []byte(secret)) {
			s.t.Errorf("the metrics hold %q", secret)
		}
	}
	return string(content)
}

// exercise makes a service count something of most kinds.
func (s *service) exercise() {
	s.t.Helper()
	for range 3 {
		if a, err := s.send("sendText", text(1, "Hello")); err != nil || a.Status != 200 {
			s.t.Fatalf("got %d, %v, want 200", a.Status, err)
		}
	}
	if a, err := s.send("sendMedia", strings.NewReader("{}")); err != nil || a.Status != 400 {
		s.t.Fatalf("got %d, %v, want 400", a.Status, err)
	}
	response, err := http.Post(s.url+"/message/sendText/wrong", "application/json", strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	_ = response.Body.Close()
}

func TestPromtool(t *testing.T) {
	need(t, "promtool")
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	s.exercise()
	metrics := s.scrape()

	check := exec.CommandContext(t.Context(), "promtool", "check", "metrics")
	check.Stdin = strings.NewReader(metrics)
	if output, err := check.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, output)
	}
	if output, err := exec.CommandContext(t.Context(), "promtool", "check", "rules", alerts).CombinedOutput(); err != nil {
		t.Errorf("promtool check rules: %v\n%s", err, output)
	}

	// An alert on a name that nothing has would never fire.
	rules, err := os.ReadFile(alerts)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range regexp.MustCompile(`\b(messagesender|process|go)_[a-z0-9_]+`).FindAllString(string(rules), -1) {
		family := strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
		if !strings.Contains(metrics, "# TYPE "+family+" ") {
			t.Errorf("%s is in the alerts and not in the metrics", name)
		}
	}
}

// TestAlerts gives each alert a history that must fire it, and one of a service
// that is well, to promtool.
func TestAlerts(t *testing.T) {
	need(t, "promtool")
	rules, err := filepath.Abs(alerts)
	if err != nil {
		t.Fatal(err)
	}
	requests := func(operation, status, code, values string) string {
		return fmt.Sprintf("messagesender_requests_total{operation=%q,status=%q,code=%q} %s", operation, status, code, values)
	}
	buckets := func(name string, below, above string) []string {
		return []string{
			fmt.Sprintf("messagesender_%s_duration_seconds_bucket{le=%q} 0x60", name, below),
			fmt.Sprintf("messagesender_%s_duration_seconds_bucket{le=%q} 0+100x60", name, above),
			fmt.Sprintf("messagesender_%s_duration_seconds_bucket{le=\"+Inf\"} 0+100x60", name),
		}
	}
	well := []string{
		`up{job="messagesender"} 1x60`,
		`process_start_time_seconds{job="messagesender"} 1700000000x60`,
		requests("text", "200", "none", "0+100x60"),
		requests("text", "400", "invalid_request", "0+10x60"),
		requests("text", "429", "rate_limited", "0+1x60"),
		requests("media", "503", "unavailable", "0+1x60"),
		requests("media", "504", "delivery_unknown", "7x60"),
		requests("media", "500", "internal_error", "7x60"),
		`messagesender_platform_errors_total{code="131026"} 0+1x60`,
		`messagesender_platform_errors_total{code="190"} 3x60`,
		`messagesender_journal_fsync_failures_total 0x60`,
		`messagesender_auth_failures_total 0+30x60`,
	}
	for _, c := range []struct {
		alert   string // empty: none
		history []string
	}{
		{"", well},
		{"MessagesenderDown", []string{`up{job="messagesender"} 1x50 0x10`}},
		{"MessagesenderRestarts", []string{`process_start_time_seconds{job="messagesender"} 1700000000+60x60`}},
		{"MessagesenderDeliveryUnknown", []string{requests("media", "504", "delivery_unknown", "0x55 1x5")}},
		{"MessagesenderDefect", []string{requests("text", "500", "internal_error", "0x55 1x5")}},
		{"MessagesenderPlatformAccess", []string{`messagesender_platform_errors_total{code="190"} 0x55 1x5`}},
		{"MessagesenderSendsFail", []string{requests("text", "200", "none", "0+10x60"), requests("text", "502", "platform_failed", "0+1x60")}},
		{"MessagesenderRateLimited", []string{requests("text", "200", "none", "0+10x60"), requests("text", "429", "rate_limited", "0+1x60")}},
		{"MessagesenderPlatformSlow", buckets("platform", "5", "10")},
		{"MessagesenderQueues", buckets("lane_wait", "30", "60")},
		{"MessagesenderJournalFailed", []string{`messagesender_journal_fsync_failures_total 0x50 1x10`}},
		{"MessagesenderJournalSlow", buckets("journal_fsync", "0.1", "0.25")},
		{"MessagesenderAuthFailures", []string{`messagesender_auth_failures_total 0+120x60`}},
	} {
		t.Run(cmp.Or(c.alert, "none"), func(t *testing.T) {
			var test strings.Builder
			fmt.Fprintf(&test, "rule_files: [%s]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n", rules)
			for _, series := range c.history {
				name, values, _ := strings.Cut(series, " ")
				fmt.Fprintf(&test, "      - {series: '%s', values: '%s'}\n", name, values)
			}
			firing := "" // all that may be
			if c.alert != "" {
				firing = fmt.Sprintf(`{labels: '{alertname=%q}', value: 1}`, c.alert)
			}
			fmt.Fprintf(&test, "    promql_expr_test:\n      - {expr: 'count by (alertname) (ALERTS{alertstate=\"firing\"})', eval_time: 60m, exp_samples: [%s]}\n", firing)
			file := filepath.Join(t.TempDir(), "test.yml")
			if err := os.WriteFile(file, []byte(test.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if output, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("promtool test rules: %v\n%s\n%s", err, output, test.String())
			}
		})
	}
}

func TestMetricsNeedAKey(t *testing.T) {
	s := start(t, filepath.Join(t.TempDir(), "data"), account())
	for _, given := range []string{"", "wrong-wrong-wrong-wrong"} {
		r, err := http.NewRequest("GET", s.url+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("apikey", given)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != 401 {
			t.Errorf("with the key %q: got %d, want 401", given, response.StatusCode)
		}
	}
}

// TestPrometheus has a real Prometheus scrape a service in both ways there are,
// and load the alert rules.
func TestPrometheus(t *testing.T) {
	need(t, "prometheus")
	rules, err := filepath.Abs(alerts)
	if err != nil {
		t.Fatal(err)
	}
	apart := freePort(t)
	for _, c := range []struct {
		name   string
		args   []string
		target func(s *service) string
		access string
	}{
		{"on an address of their own, without a key", []string{"-metrics-addr", apart}, func(*service) string { return apart }, ""},
		{"on the main listener, with a key", nil, func(s *service) string { return strings.TrimPrefix(s.url, "http://") },
			"    basic_auth: {username: prometheus, password: " + key + "}\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // it takes Prometheus 5 s to look for its targets
			s := start(t, filepath.Join(t.TempDir(), "data"), account(), c.args...)
			s.exercise()
			query := startPrometheus(t, "rule_files: ["+rules+"]\nscrape_configs:\n  - job_name: messagesender\n    scrape_interval: 1s\n"+c.access+
				"    static_configs: [{targets: ["+c.target(s)+"]}]\n")
			eventually(t, "Prometheus has scraped", func() bool { return query("up") == "1" })
			for expression, want := range map[string]string{
				`count(messagesender_build_info)`:                                        "1",
				`messagesender_requests_total{operation="text",status="200"}`:            "3",
				`messagesender_requests_total{operation="media",code="invalid_request"}`: "1",
				`messagesender_auth_failures_total`:                                      "1",
				`messagesender_hold_duration_seconds_count`:                              "3",
				`messagesender_outbox_messages`:                                          "3",
				`messagesender_held_requests`:                                            "0",
				`count(ALERTS) or vector(0)`:                                             "0",
			} {
				if got := query(expression); got != want {
					t.Errorf("%s: got %q, want %s", expression, got, want)
				}
			}
		})
	}
}

// startPrometheus runs a Prometheus until the test ends. query evaluates an
// expression that has one value; empty: it has none.
func startPrometheus(t *testing.T, config string) (query func(string) string) {
	t.Helper()
	dir, listen := t.TempDir(), freePort(t)
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var said output
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "tsdb"), "--web.listen-address="+listen, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", tail(said.String(), 30))
		}
	})
	return func(expression string) string {
		response, err := http.Get("http://" + listen + "/api/v1/query?query=" + url.QueryEscape(expression))
		if err != nil {
			return "" // it is not there yet
		}
		defer response.Body.Close()
		var answer struct {
			Data struct{ Result []struct{ Value []any } }
		}
		if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || len(answer.Data.Result) != 1 {
			return ""
		}
		return fmt.Sprint(answer.Data.Result[0].Value[1])
	}
}
