package sandbox

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"snapfs/sandbox/api"
)

// metrics count what happens in a home.
type metrics struct {
	registry *prometheus.Registry
	held     prometheus.Histogram
	happened *prometheus.CounterVec
	storing  prometheus.Histogram
	failed   prometheus.Counter
}

func newMetrics(h *Home) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		held: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "snapfs_held_seconds",
			Help: "How long a snapshot, fork or rollback, or a merged layer that is put in place, " +
				"held the changes of its workspace back.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}),
		happened: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_events_total", Help: "Entries of the event log since the home was opened, by kind.",
		}, []string{"kind"}),
		storing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "snapfs_store_seconds", Help: "How long storing a layer took, in the background.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 4, 10),
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "snapfs_store_failures_total", Help: "Attempts to store a layer that failed and are repeated.",
		}),
	}
	for _, kind := range api.EventKinds() { // shown from the beginning, so that the first event is an increase
		m.happened.WithLabelValues(string(kind))
	}
	gauge := func(name, help string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			return float64(value())
		})
	}
	m.registry.MustRegister(m.held, m.happened, m.storing, m.failed,
		gauge("snapfs_workspaces", "Workspaces of the home.", func() int { return h.catalog.Count().Workspaces }),
		gauge("snapfs_snapshots", "Snapshots of the home.", func() int { return h.catalog.Count().Snapshots }),
		gauge("snapfs_layers", "Layers of the home.", func() int { return h.catalog.Count().Layers }),
		gauge("snapfs_layers_sealed", "Layers that are frozen, or being imported, and not stored yet.", func() int {
			return h.catalog.Count().Sealed
		}),
		gauge("snapfs_mounts", "Workspaces with a live connection.", h.Mounts),
	)
	return m
}

// tell counts events that have become durable.
func (m *metrics) tell(events []Event) {
	for _, e := range events {
		m.happened.WithLabelValues(string(e.Kind)).Inc()
	}
}

// pause counts for how long changes were held back.
func (m *metrics) pause(d time.Duration) { m.held.Observe(d.Seconds()) }

// stored counts an attempt to store a layer.
func (m *metrics) stored(took time.Duration, err error) {
	if err != nil {
		m.failed.Inc()
		return
	}
	m.storing.Observe(took.Seconds())
}

// Metrics are the counters of the home, to be served to Prometheus. Safe for concurrent use.
func (h *Home) Metrics() *prometheus.Registry { return h.metrics.registry }
