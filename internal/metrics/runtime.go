package metrics

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// addRuntime adds what the Go runtime says of the process, under the names that
// Go programs customarily have.
func addRuntime(r *Registry) {
	for _, m := range []struct{ name, help, kind, source string }{
		{"go_goroutines", "Goroutines that exist now.", "gauge", "/sched/goroutines:goroutines"},
		{"go_memstats_heap_alloc_bytes", "Heap occupied by live objects and by dead ones not yet swept.", "gauge", "/memory/classes/heap/objects:bytes"},
		{"go_memstats_sys_bytes", "Memory mapped by the Go runtime.", "gauge", "/memory/classes/total:bytes"},
		{"go_gc_cycles_total", "Garbage collections completed.", "counter", "/gc/cycles/total:gc-cycles"},
		{"go_gc_cpu_seconds_total", "Estimated processor time spent on garbage collection.", "counter", "/cpu/classes/gc/total:cpu-seconds"},
	} {
		r.add(family{m.name, m.help, m.kind, func(o *output, name string) {
			sample := []metrics.Sample{{Name: m.source}}
			metrics.Read(sample)
			switch value := sample[0].Value; value.Kind() {
			case metrics.KindUint64:
				o.integer(name, "", value.Uint64())
			case metrics.KindFloat64:
				o.number(name, "", value.Float64())
			default: // a later Go has dropped it: better no sample than a wrong one
			}
		}})
	}
	start := float64(time.Now().UnixMilli()) / 1000
	r.add(family{"process_start_time_seconds", "When the process started, in seconds since 1970.", "gauge",
		func(o *output, name string) { o.number(name, "", start) }})
}

// addBuild adds which build of the program this is. revision is empty in a build
// without version control information.
func addBuild(r *Registry, version string) {
	var revision string
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	r.info("messagesender_build_info", "The build of the program, in its labels.",
		"version", version, "revision", revision, "goversion", runtime.Version())
}
