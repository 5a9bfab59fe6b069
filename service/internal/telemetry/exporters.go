package telemetry

import "time"

// Exporters configure where metrics and traces are exported, besides the admin port and the OTEL_… variables. The zero
// value exports nowhere.
type Exporters struct {
	// Statsd receives counters. Nil is none.
	Statsd *Statsd
	// PrometheusAddr is an address for Prometheus, which reads PrometheusPath there. Empty leaves only the admin port.
	PrometheusAddr, PrometheusPath string
	// Tracing turns traces on. Nil leaves it to the OTEL_… variables.
	Tracing *Tracing
}

// Statsd is a server that receives counters.
type Statsd struct {
	// Network is tcp or udp, and Addr a host and a port.
	Network, Addr string
	// Dog sends Tags as DogStatsD writes them, and not as parts of names.
	Dog bool
	// Tags are key:value, sorted by key.
	Tags []string
	// Interval is the time between two rounds.
	Interval time.Duration
}

// Tracing configures traces. The OTEL_… variables configure the rest.
type Tracing struct {
	// Protocol is http. Empty leaves it to the OTEL_… variables.
	Protocol string
	// Service, Namespace and Instance name this process. Namespace and Instance may be empty.
	Service, Namespace, Instance string
	// Rate is the share of traces to keep, of those that begin here: 0 to 1.
	Rate float64
}
