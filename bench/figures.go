package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// measureText is sendText with delay 0 into the outbox, 64 keep-alive
// connections, distinct numbers, against a handler that decodes and answers.
func measureText(ctx context.Context, b *bench) error {
	service, err := b.startService(ctx, nil)
	if err != nil {
		return err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "text")
	if err != nil {
		return err
	}
	defer floor.stop()
	return compareText(ctx, "sendText into the outbox", service, floor, 0.5)
}

// measureWhatsApp is sendText through WhatsApp, to a stand-in of the Cloud API,
// against a handler that forwards the same text with net/http's client.
func measureWhatsApp(ctx context.Context, b *bench) error {
	graph, err := b.startFloor(ctx, "graph")
	if err != nil {
		return err
	}
	defer graph.stop()
	service, err := b.startService(ctx, []string{"WHATSAPP_PHONE_NUMBER_ID=1", "WHATSAPP_ACCESS_TOKEN=bench"},
		"-sender", "whatsapp", "-whatsapp-url", "http://"+graph.addr)
	if err != nil {
		return err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "forward", "UPSTREAM=http://"+graph.addr)
	if err != nil {
		return err
	}
	defer floor.stop()
	return compareText(ctx, "sendText through WhatsApp", service, floor, 0.9)
}

// compareText loads both with sendText in turns, over 64 keep-alive connections
// and with distinct numbers.
func compareText(ctx context.Context, what string, service, floor *process, aim float64) error {
	const connections, rounds, length = 64, 3, 3 * time.Second
	var ratios []float64
	for range rounds {
		bare, err := loadText(ctx, floor, connections, length)
		if err != nil {
			return fmt.Errorf("bare handler: %w", err)
		}
		ours, err := loadText(ctx, service, connections, length)
		if err != nil {
			return fmt.Errorf("service: %w", err)
		}
		ratios = append(ratios, ours.perSecond/bare.perSecond)
		fmt.Printf("%s, %d connections: service %.0f/s (p50 %v, p99 %v, CPU %v each), bare handler %.0f/s (p99 %v, CPU %v each), ratio %.2f\n",
			what, connections, ours.perSecond, ours.p50, ours.p99, ours.cpu, bare.perSecond, bare.p99, bare.cpu, ours.perSecond/bare.perSecond)
	}
	peak, err := service.memory("VmHWM")
	fmt.Printf("measured: %s: ratio to a bare handler %.2f (median of %d; aim %.1f), peak RSS %d MiB\n", what, median(ratios), rounds, aim, peak>>20)
	return err
}

// measureHold is the memory of a held request against a handler that decodes
// the same body and sleeps.
func measureHold(ctx context.Context, b *bench) error {
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
		if opened := time.Since(begin); opened > delay/2 {
			fmt.Printf("opening %d connections took %v\n", held, opened)
		}
		time.Sleep(time.Until(begin.Add(delay - time.Second)))
		during, err := p.memory("VmRSS")
		wait.Wait()
		if len(failures) > 0 {
			return 0, fmt.Errorf("%d of %d failed, one with %w", len(failures), held, <-failures)
		}
		return float64(during-before) / held / 1024, err
	}
	service, err := b.startService(ctx, nil)
	if err != nil {
		return err
	}
	defer service.stop()
	floor, err := b.startFloor(ctx, "text")
	if err != nil {
		return err
	}
	defer floor.stop()
	bare, err := each(floor)
	if err != nil {
		return fmt.Errorf("bare handler: %w", err)
	}
	ours, err := each(service)
	if err != nil {
		return fmt.Errorf("service: %w", err)
	}
	fmt.Printf("measured: %d requests held: service %.1f KiB each, bare handler %.1f KiB each, ratio %.2f (aim at most 1.25)\n", held, ours, bare, ours/bare)
	return nil
}

// measureOverload asks for ten times as much as the service may take: 100 sends
// at once that are held for a second each, so 100 a second.
func measureOverload(ctx context.Context, b *bench) error {
	const room, hold, factor, length = 100, time.Second, 10, 8 * time.Second
	service, err := b.startService(ctx, nil, "-max-sends", fmt.Sprint(room))
	if err != nil {
		return err
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
			refused := errors.Is(err, errStatus)
			switch {
			case err == nil:
				sent++
			case refused:
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
	slices.Sort(refusals)
	peak, err := service.memory("VmHWM")
	if len(refusals) == 0 {
		return errors.New("nothing was refused")
	}
	goodput := float64(sent) / took.Seconds() / (room / hold.Seconds())
	fmt.Printf("measured: overload at %d times capacity: goodput %.2f of capacity (aim 0.9), %d refused with p99 %v (aim under 10ms), %d without an answer, peak RSS %d MiB\n",
		factor, goodput, len(refusals), refusals[len(refusals)*99/100], lost, peak>>20)
	return err
}

// measureBase64 sends 16 MiB of media as Base64, one after another and eight at
// once, against encoding/json, base64, SHA-256 and a file.
func measureBase64(ctx context.Context, b *bench) error {
	const size, rounds, together = 16 << 20, 8, 8
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(content)
	body := fmt.Appendf(nil, `{"number":"15550001234","mediaMessage":{"mediaType":"document","fileName":"a.bin","media":"%s"}}`, base64.StdEncoding.EncodeToString(content))

	throughput := func(p *process) (float64, error) {
		c, err := dial(p.addr)
		if err != nil {
			return 0, err
		}
		defer c.conn.Close()
		var rates []float64
		for range rounds {
			start := time.Now()
			if err := c.post("/message/sendMedia/"+benchToken, len(body), body); err != nil {
				return 0, err
			}
			rates = append(rates, float64(len(body))/1e6/time.Since(start).Seconds())
		}
		return median(rates), nil
	}
	atOnce := func(p *process) (int64, error) {
		var wait sync.WaitGroup
		failures := make(chan error, together)
		for range together {
			wait.Go(func() {
				c, err := dial(p.addr)
				if err == nil {
					defer c.conn.Close()
					err = c.post("/message/sendMedia/"+benchToken, len(body), bytes.Clone(body))
				}
				failures <- err
			})
		}
		wait.Wait()
		for range together {
			if err := <-failures; err != nil {
				return 0, err
			}
		}
		return p.memory("VmHWM")
	}
	var rates [2]float64
	var peaks [2]int64
	for i, start := range []func() (*process, error){
		func() (*process, error) { return b.startService(ctx, nil) },
		func() (*process, error) { return b.startFloor(ctx, "base64") },
	} {
		p, err := start()
		if err != nil {
			return err
		}
		defer p.stop()
		if rates[i], err = throughput(p); err != nil {
			return err
		}
		if peaks[i], err = atOnce(p); err != nil {
			return err
		}
	}
	fmt.Printf("measured: Base64 of 16 MiB over HTTP: service %.0f MB/s, encoding/json+base64 %.0f MB/s, ratio %.2f (aim 3)\n", rates[0], rates[1], rates[0]/rates[1])
	fmt.Printf("measured: eight of them at once: peak RSS service %d MiB (aim under 96), encoding/json+base64 %d MiB\n", peaks[0]>>20, peaks[1]>>20)
	return nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
