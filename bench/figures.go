package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// measureStart is the time from the start of the process to the answer to a first
// sendText, and the size of the binary.
func measureStart(ctx context.Context, b *bench) ([]row, error) {
	const rounds = 11
	start := row{what: "start to the first answer", unit: "ms", goal: 30, most: true}
	for range rounds {
		begin := time.Now()
		service, err := b.startService(ctx, nil)
		if err != nil {
			return nil, err
		}
		c, err := dial(service.addr)
		if err == nil {
			body := textBody(15550001234, "")
			err = c.post("/message/sendText/"+benchToken, len(body), body)
			start.service = append(start.service, float64(time.Since(begin).Microseconds())/1000)
			c.conn.Close()
		}
		service.stop()
		if err != nil {
			return nil, err
		}
	}
	info, err := os.Stat(b.service)
	if err != nil {
		return nil, err
	}
	size := row{what: "binary", unit: "MiB", service: []float64{float64(info.Size()) / (1 << 20)}, goal: 12, most: true}
	return []row{start, size}, nil
}

// measureText is sendText with delay 0 into the outbox, 64 keep-alive
// connections, distinct numbers, against a handler that decodes and answers.
func measureText(ctx context.Context, b *bench) ([]row, error) {
	service, err := b.startService(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "text")
	if err != nil {
		return nil, err
	}
	defer floor.stop()
	return compareText(ctx, "sendText into the outbox", service, floor, load{}, "decodes and answers", 0.5)
}

// measureKeys is sendText with an Idempotency-Key, against the same without.
func measureKeys(ctx context.Context, b *bench) ([]row, error) {
	service, err := b.startService(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	plain, err := b.startService(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer plain.stop()
	rows, err := compareText(ctx, "sendText with keys", service, plain, load{keyed: true}, "without keys", 0.5)
	if err != nil {
		return nil, err
	}
	syncs, err := service.metric("messagesender_journal_fsync_duration_seconds_count")
	if err != nil {
		return nil, err
	}
	sent, err := service.metric("messagesender_platform_duration_seconds_count")
	if err != nil {
		return nil, err
	}
	return append(rows, row{what: "fsyncs for each message with a key, 64 at once", unit: "fsyncs", service: []float64{syncs / sent}}), nil
}

// measureWhatsApp is sendText through WhatsApp, to a stand-in of the Cloud API,
// against a handler that forwards the same text with net/http's client.
func measureWhatsApp(ctx context.Context, b *bench) ([]row, error) {
	graph, err := b.startFloor(ctx, "graph")
	if err != nil {
		return nil, err
	}
	defer graph.stop()
	service, err := b.startService(ctx, []string{"WHATSAPP_PHONE_NUMBER_ID=1", "WHATSAPP_ACCESS_TOKEN=bench"},
		"-sender", "whatsapp", "-whatsapp-url", "http://"+graph.addr)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "forward", "UPSTREAM=http://"+graph.addr)
	if err != nil {
		return nil, err
	}
	defer floor.stop()
	rows, err := compareText(ctx, "sendText through WhatsApp", service, floor, load{}, "forwards the text", 0.9)
	if err == nil {
		rows[len(rows)-1].goal, rows[len(rows)-1].most = 30, true // of the peak
	}
	return rows, err
}

// compareText loads both in turns, over 64 keep-alive connections and with
// distinct numbers; the keys are the service's alone.
func compareText(ctx context.Context, what string, service, floor *process, l load, against string, goal float64) ([]row, error) {
	const rounds = 3
	l.connections, l.length = 64, 3*time.Second
	rates := row{what: what, unit: "requests/s", against: against, goal: goal}
	slow := row{what: what + ", p99", unit: "ms"}
	cpu := row{what: what + ", processor time each", unit: "µs"}
	for range rounds {
		bare, err := load{connections: l.connections, length: l.length}.run(ctx, floor)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", against, err)
		}
		ours, err := l.run(ctx, service)
		if err != nil {
			return nil, fmt.Errorf("service: %w", err)
		}
		rates.service, rates.floor = append(rates.service, ours.perSecond), append(rates.floor, bare.perSecond)
		slow.service, slow.floor = append(slow.service, ours.p99.Seconds()*1000), append(slow.floor, bare.p99.Seconds()*1000)
		cpu.service, cpu.floor = append(cpu.service, ours.cpu.Seconds()*1e6), append(cpu.floor, bare.cpu.Seconds()*1e6)
	}
	peak, err := service.memory("VmHWM")
	return []row{rates, slow, cpu, {what: what + ", peak RSS", unit: "MiB", service: []float64{float64(peak >> 20)}}}, err
}

// measureHold is the memory of a held request against a handler that decodes
// the same body and sleeps.
func measureHold(ctx context.Context, b *bench) ([]row, error) {
	const held, delay = 9000, 8 * time.Second
	each := func(p *process) (float64, error) {
		before, err := p.memory("VmRSS")
		if err != nil {
			return 0, err
		}
		var wait sync.WaitGroup
		failures := make(chan error, held)
		options := fmt.Sprintf(`"delay":%d,"presence":"composing"`, delay.Milliseconds())
		begin := time.Now()
		for i := range held {
			c, err := dial(p.addr)
			if err != nil {
				return 0, fmt.Errorf("connection %d: %w", i, err)
			}
			wait.Go(func() {
				defer c.conn.Close()
				body := textBody(1_000_000_000+i, options)
				if err := c.post("/message/sendText/"+benchToken, len(body), body); err != nil {
					failures <- err
				}
			})
		}
		time.Sleep(time.Until(begin.Add(delay - time.Second)))
		during, err := p.memory("VmRSS")
		wait.Wait()
		if len(failures) > 0 {
			return 0, fmt.Errorf("%d of %d failed, one with %w", len(failures), held, <-failures)
		}
		return float64(during-before) / held / 1024, err
	}
	r := row{what: fmt.Sprintf("memory of each of %d held requests", held), unit: "KiB", against: "decodes and sleeps", goal: 1.25, most: true}
	service, err := b.startService(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "text")
	if err != nil {
		return nil, err
	}
	defer floor.stop()
	bare, err := each(floor)
	if err != nil {
		return nil, fmt.Errorf("bare handler: %w", err)
	}
	ours, err := each(service)
	if err != nil {
		return nil, fmt.Errorf("service: %w", err)
	}
	r.service, r.floor = []float64{ours}, []float64{bare}
	return []row{r}, nil
}

// measureOverload asks for ten times as much as the service may take: 100 sends
// at once that are held for a second each, so 100 a second.
func measureOverload(ctx context.Context, b *bench) ([]row, error) {
	const room, hold, factor, length = 100, time.Second, 10, 8 * time.Second
	service, err := b.startService(ctx, nil, "-max-sends", fmt.Sprint(room))
	if err != nil {
		return nil, err
	}
	defer service.stop()
	var (
		wait       sync.WaitGroup
		mu         sync.Mutex
		sent, lost int
		refusals   []time.Duration
	)
	idle := make(chan *client, 2*room*factor)
	ticker := time.NewTicker(hold / (room * factor))
	defer ticker.Stop()
	begin := time.Now()
	for n := 0; time.Since(begin) < length; n++ {
		<-ticker.C
		body := textBody(1_000_000_000+n, fmt.Sprintf(`"delay":%d`, hold.Milliseconds()))
		wait.Go(func() {
			var c *client
			select {
			case c = <-idle:
			default:
				var err error
				if c, err = dial(service.addr); err != nil {
					mu.Lock()
					lost++
					mu.Unlock()
					return
				}
			}
			start := time.Now()
			err := c.post("/message/sendText/"+benchToken, len(body), body)
			took := time.Since(start)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				sent++
			case errors.Is(err, errStatus):
				refusals = append(refusals, took)
			default:
				lost++
				c.conn.Close()
				return
			}
			select {
			case idle <- c:
			default:
				c.conn.Close()
			}
		})
	}
	wait.Wait()
	took := time.Since(begin)
	if len(refusals) == 0 || lost > 0 {
		return nil, fmt.Errorf("%d were refused and %d not answered, want more than 0 and 0", len(refusals), lost)
	}
	slices.Sort(refusals)
	peak, err := service.memory("VmHWM")
	return []row{
		{what: "goodput at ten times capacity", unit: "of capacity", service: []float64{float64(sent) / took.Seconds() / (room / hold.Seconds())}, goal: 0.9},
		{what: "refusal at ten times capacity, p99", unit: "ms", service: []float64{refusals[len(refusals)*99/100].Seconds() * 1000}, goal: 10, most: true},
		{what: "peak RSS at ten times capacity", unit: "MiB", service: []float64{float64(peak >> 20)}},
	}, err
}

// measureBase64 sends 16 MiB of media as Base64, one after another and eight at
// once, against encoding/json, base64, SHA-256 and a file.
func measureBase64(ctx context.Context, b *bench) ([]row, error) {
	const size, rounds, together = 16 << 20, 9, 8
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	body := fmt.Appendf(nil, `{"number":"15550001234","mediaMessage":{"mediaType":"document","fileName":"a.bin","media":"%s"}}`, base64.StdEncoding.EncodeToString(content))
	send := func(p *process, body []byte) error {
		c, err := dial(p.addr)
		if err != nil {
			return err
		}
		defer c.conn.Close()
		return c.post("/message/sendMedia/"+benchToken, len(body), body)
	}
	speed := row{what: "Base64 of 16 MiB over HTTP", unit: "MB/s", against: "encoding/json, base64", goal: 3}
	one := row{what: "peak RSS, 16 MiB, one at a time", unit: "MiB", against: speed.against}
	eight := row{what: "peak RSS, 16 MiB, eight at once", unit: "MiB", against: speed.against}
	measure := func(p *process, rates, alone, all *[]float64) error {
		for range rounds {
			start := time.Now()
			if err := send(p, body); err != nil {
				return err
			}
			*rates = append(*rates, float64(len(body))/1e6/time.Since(start).Seconds())
		}
		peak, err := p.memory("VmHWM")
		if err != nil {
			return err
		}
		*alone = append(*alone, float64(peak>>20))
		failures := make(chan error, together)
		for range together {
			go func() { failures <- send(p, bytes.Clone(body)) }()
		}
		for range together {
			err = errors.Join(err, <-failures)
		}
		if err != nil {
			return err
		}
		peak, err = p.memory("VmHWM")
		*all = append(*all, float64(peak>>20))
		return err
	}
	service, err := b.startService(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	if err := measure(service, &speed.service, &one.service, &eight.service); err != nil {
		return nil, err
	}
	floor, err := b.startFloor(ctx, "base64")
	if err != nil {
		return nil, err
	}
	defer floor.stop()
	return []row{speed, one, eight}, measure(floor, &speed.floor, &one.floor, &eight.floor)
}

// measureURL sends a document of 100 MiB by its URL, against io.Copy of the same
// answer to a file.
func measureURL(ctx context.Context, b *bench) ([]row, error) {
	const rounds = 5
	files, err := b.startFloor(ctx, "files")
	if err != nil {
		return nil, err
	}
	defer files.stop()
	service, err := b.startService(ctx, nil, "-allow-media-from", files.addr)
	if err != nil {
		return nil, err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "copy")
	if err != nil {
		return nil, err
	}
	defer floor.stop()
	body := fmt.Appendf(nil, `{"number":"15550001234","mediaMessage":{"mediaType":"document","fileName":"a.bin","media":"http://%s/"}}`, files.addr)
	r := row{what: "media of 100 MiB by URL", unit: "MB/s", against: "io.Copy to a file", goal: 0.9}
	for range rounds {
		for p, rates := range map[*process]*[]float64{service: &r.service, floor: &r.floor} {
			c, err := dial(p.addr)
			if err != nil {
				return nil, err
			}
			start := time.Now()
			err = c.post("/message/sendMedia/"+benchToken, len(body), body)
			*rates = append(*rates, fileSize/1e6/time.Since(start).Seconds())
			c.conn.Close()
			if err != nil {
				return nil, err
			}
		}
	}
	peak, err := service.memory("VmHWM")
	return []row{r, {what: "peak RSS, 100 MiB by URL", unit: "MiB", service: []float64{float64(peak >> 20)}, goal: 64, most: true}}, err
}

// metric reads one value of the service's own /metrics.
func (p *process) metric(name string) (float64, error) {
	r, err := http.NewRequest("GET", "http://"+p.addr+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	r.Header.Set("apikey", benchKey)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}
