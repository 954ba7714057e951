package daemon

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"snapfs/sandbox/api"
	"snapfs/sandbox/api/caller"
)

// httpMetrics count requests. Values of labels are bounded: patterns of the server and its services, and statuses.
type httpMetrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	refused  *prometheus.CounterVec
	under    prometheus.Gauge
}

// metricService serves the metrics of the home, those of requests among them: they are about all sessions.
func (s *server) metricService() Service {
	all := promhttp.HandlerFor(s.home.Metrics(), promhttp.HandlerOpts{})
	return Service{Pattern: "GET /metrics", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := caller.From(r.Context()).NeedTrust("metrics", api.ScopeMetrics); err != nil {
			s.refuse(exchangeOf(r), r, err)
			return
		}
		all.ServeHTTP(w, r)
	})}
}

// newHTTPMetrics registers the metrics at a registry until forget is called.
func newHTTPMetrics(r prometheus.Registerer) (m *httpMetrics, forget func(), err error) {
	m = &httpMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_http_requests_total", Help: "Requests that were answered, by pattern of the path and status.",
		}, []string{"route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "snapfs_http_request_seconds", Help: "How long requests took, those that stream included, by pattern of the path.",
			Buckets: prometheus.ExponentialBuckets(250e-6, 4, 9),
		}, []string{"route"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "snapfs_http_refused_total", Help: "Requests that were refused, by status: 401, 403, 429.",
		}, []string{"status"}),
		under: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "snapfs_http_requests_under_way", Help: "Requests that are being answered.",
		}),
	}
	all := []prometheus.Collector{m.requests, m.seconds, m.refused, m.under}
	for i, c := range all {
		if err := r.Register(c); err != nil {
			for _, c := range all[:i] {
				r.Unregister(c)
			}
			return nil, nil, err
		}
	}
	return m, func() {
		for _, c := range all {
			r.Unregister(c)
		}
	}, nil
}

func (m *httpMetrics) begin() { m.under.Inc() }

// end counts a request that was answered; status 0 is one that was not.
func (m *httpMetrics) end(route string, status int, took time.Duration) {
	m.under.Dec()
	if route == "" {
		route = "other"
	}
	m.requests.WithLabelValues(route, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(route).Observe(took.Seconds())
}

func (m *httpMetrics) refuse(status int) { m.refused.WithLabelValues(strconv.Itoa(status)).Inc() }
