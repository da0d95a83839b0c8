// Package metrics counts what the service does and writes it in the Prometheus
// text format, version 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats/).
//
// Everything is counted in atomic integers; counting takes no lock and allocates
// nothing. The label sets are fixed when a family is made, so the output cannot
// grow with what clients send: no number, key, token or account is a label.
package metrics

import (
	"sync/atomic"
	"time"
)

// Counter only ever goes up. The zero value is ready to use.
type Counter struct{ n atomic.Uint64 }

func (c *Counter) Inc() { c.n.Add(1) }

// Gauge goes up and down. The zero value is ready to use.
type Gauge struct{ n atomic.Int64 }

func (g *Gauge) Inc() { g.n.Add(1) }
func (g *Gauge) Dec() { g.n.Add(-1) }

// Histogram counts durations by size. It is made by newHistogram.
type Histogram struct {
	bounds  []time.Duration // ascending; each belongs to the bucket it closes
	buckets []atomic.Uint64 // one for each bound and one for all that is longer
	// sum is in microseconds: as nanoseconds it would run over after three weeks
	// of 10,000 holds at a time.
	sum atomic.Uint64
}

func newHistogram(bounds []time.Duration) *Histogram {
	return &Histogram{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts one duration. A negative one, of a clock that was set, is 0.
func (h *Histogram) Observe(d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(h.bounds) && d > h.bounds[i] {
		i++
	}
	h.buckets[i].Add(1)
	h.sum.Add(uint64((d + time.Microsecond/2) / time.Microsecond))
}

// other is the label value that stands for every value outside of a label's set.
const other = "other"

// label is the name of a label and all the values it can have, beside other.
type label struct {
	name   string
	values []string
}

// counters is a counter for each combination of label values.
type counters struct {
	labels []label          // with other as the last value of each
	index  []map[string]int // of each label: where a value stands in its values
	each   []Counter        // row-major: the last label runs fastest
	always map[int]bool     // which are written also while they are 0
}

func newCounters(labels ...label) *counters {
	c := &counters{always: map[int]bool{}}
	size := 1
	for _, l := range labels {
		index := make(map[string]int, len(l.values))
		for i, value := range l.values {
			index[value] = i
		}
		c.index = append(c.index, index)
		c.labels = append(c.labels, label{l.name, append(append([]string(nil), l.values...), other)})
		size *= len(l.values) + 1
	}
	c.each = make([]Counter, size)
	return c
}

// with is the counter of the given values, one for each label in order. A value
// that is not in its label's set counts as other.
func (c *counters) with(values ...string) *Counter { return &c.each[c.at(values)] }

func (c *counters) at(values []string) int {
	at := 0
	for i, index := range c.index {
		place, known := index[values[i]]
		if !known {
			place = len(index)
		}
		at = at*(len(index)+1) + place
	}
	return at
}

// values is the opposite of at: the label values of a counter.
func (c *counters) values(at int) []string {
	values := make([]string, len(c.labels))
	for i := len(c.labels) - 1; i >= 0; i-- {
		n := len(c.labels[i].values)
		values[i] = c.labels[i].values[at%n]
		at /= n
	}
	return values
}
