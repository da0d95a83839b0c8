package metrics

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ContentType is that of what WriteTo writes.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Registry holds metric families and writes them, in the order of their names.
// The zero value is empty. All methods may be called from any goroutine.
type Registry struct {
	mu       sync.Mutex
	families []family
}

// family is everything of one name.
type family struct {
	name, help, kind string
	write            func(o *output, name string)
}

// add makes a family part of every later WriteTo. Two of one name are a defect
// of the program: a scraper would refuse all of the output.
func (r *Registry) add(f family) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, taken := slices.BinarySearchFunc(r.families, f.name, func(f family, name string) int { return strings.Compare(f.name, name) })
	if taken {
		panic("metrics: two families are called " + f.name)
	}
	r.families = slices.Insert(r.families, at, f)
}

// Counter adds a counter; by convention its name ends in _total.
func (r *Registry) Counter(name, help string) *Counter {
	c := new(Counter)
	r.add(family{name, help, "counter", func(o *output, name string) { o.integer(name, "", c.n.Load()) }})
	return c
}

// Gauge adds a gauge.
func (r *Registry) Gauge(name, help string) *Gauge {
	g := new(Gauge)
	r.GaugeFunc(name, help, g.n.Load)
	return g
}

// GaugeFunc adds a gauge whose value is asked for at each WriteTo. value may be
// called from several goroutines at once.
func (r *Registry) GaugeFunc(name, help string, value func() int64) {
	r.add(family{name, help, "gauge", func(o *output, name string) { o.number(name, "", float64(value())) }})
}

// Histogram adds a histogram of durations, in seconds; by convention its name
// ends in _seconds. The bounds are ascending.
func (r *Registry) Histogram(name, help string, bounds ...time.Duration) *Histogram {
	h := newHistogram(bounds)
	r.add(family{name, help, "histogram", func(o *output, name string) { o.histogram(name, h) }})
	return h
}

// counters adds a counter for each combination of label values. Written are those
// that have counted, because most combinations of several labels cannot occur,
// and from the start those in always, so that rate() sees their first event too.
// With a single label that is all of them.
func (r *Registry) counters(name, help string, labels ...label) *counters {
	c := newCounters(labels...)
	r.add(family{name, help, "counter", func(o *output, name string) {
		for i := range c.each {
			n := c.each[i].n.Load()
			if n == 0 && len(c.labels) > 1 && !c.always[i] {
				continue
			}
			var pairs []string
			for l, value := range c.values(i) {
				pairs = append(pairs, pair(c.labels[l].name, value))
			}
			o.integer(name, strings.Join(pairs, ","), n)
		}
	}})
	return c
}

// info adds a gauge that is always 1 and says what it has to say in its labels,
// which are given as name and value in turn.
func (r *Registry) info(name, help string, labels ...string) {
	var pairs []string
	for i := 0; i+1 < len(labels); i += 2 {
		pairs = append(pairs, pair(labels[i], labels[i+1]))
	}
	joined := strings.Join(pairs, ",")
	r.add(family{name, help, "gauge", func(o *output, name string) { o.integer(name, joined, 1) }})
}

// WriteTo writes all families, in one call of w.Write, so that a scraper that
// reads slowly holds nothing up here. Counting goes on meanwhile: each value is
// right by itself, and a histogram's buckets always add up to its count.
func (r *Registry) WriteTo(w io.Writer) (int64, error) {
	r.mu.Lock()
	families := slices.Clone(r.families)
	r.mu.Unlock()
	var o output
	for _, f := range families {
		fmt.Fprintf(&o, "# HELP %s %s\n# TYPE %s %s\n", f.name, helpEscape.Replace(f.help), f.name, f.kind)
		f.write(&o, f.name)
	}
	return o.Buffer.WriteTo(w)
}

// output is the text while it is made.
type output struct{ bytes.Buffer }

// sample writes one line; labels without braces, empty: none.
func (o *output) sample(name, labels, value string) {
	o.WriteString(name)
	if labels != "" {
		o.WriteString("{" + labels + "}")
	}
	o.WriteString(" " + value + "\n")
}

func (o *output) integer(name, labels string, value uint64) {
	o.sample(name, labels, strconv.FormatUint(value, 10))
}

func (o *output) number(name, labels string, value float64) {
	o.sample(name, labels, decimal(value))
}

// histogram writes cumulative buckets. The count is that of the last one, and
// not a number of its own, so that the two cannot contradict each other.
func (o *output) histogram(name string, h *Histogram) {
	var count uint64
	for i := range h.buckets {
		count += h.buckets[i].Load()
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = decimal(h.bounds[i].Seconds())
		}
		o.integer(name+"_bucket", pair("le", bound), count)
	}
	o.number(name+"_sum", "", float64(h.sum.Load())/1e6)
	o.integer(name+"_count", "", count)
}

func decimal(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

var (
	helpEscape  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func pair(name, value string) string { return name + `="` + labelEscape.Replace(value) + `"` }
