package replay

// An Outcome is what a candidate would have done.
type Outcome struct {
	// Limits are the candidate's, as they were written.
	Limits    []string `json:"limits"`
	Policy    string   `json:"policy,omitempty"`
	Algorithm string   `json:"algorithm"`
	Retry     string   `json:"retry"`

	// Requests are those of the log. Refused were refused when they were first tried.
	Requests     int64   `json:"requests"`
	Refused      int64   `json:"refused"`
	RefusedShare float64 `json:"refused_share"`
	// FirstRefused is when the first of them was: when a quota runs out. RFC 3339; empty without refusals.
	FirstRefused string `json:"first_refused,omitempty"`
	// AboveLimit are the refused requests that cost more than a limit has units: they never fit.
	AboveLimit int64 `json:"above_limit"`
	// RefusedBy counts the refused requests by limit.
	RefusedBy map[string]int64 `json:"refused_by"`
	// ClientsLimited were refused at least once.
	ClientsLimited      int64   `json:"clients_limited"`
	ClientsLimitedShare float64 `json:"clients_limited_share"`
	// LimitedSeconds is how long clients were limited, added up: each from a refusal until what was
	// refused would fit.
	LimitedSeconds float64 `json:"limited_seconds"`

	WorstClients []Worst `json:"worst_clients"`
	WorstRoutes  []Worst `json:"worst_routes"`

	// OneClient is the most units that one client was admitted in any sliding window of each limit: never
	// more than the limit by an exact algorithm.
	OneClient []Most `json:"one_client"`
	// AllClients is the most units that all clients together asked for and were admitted in any window.
	AllClients []Most `json:"all_clients"`

	// Shares are the candidate's. Days is there when it was asked for: the days of Zone that have requests, in order,
	// and of each its classes that have.
	Shares []int  `json:"shares,omitempty"`
	Zone   string `json:"zone,omitempty"`
	Days   []Day  `json:"days,omitempty"`

	Retries *Retries `json:"retries,omitempty"`
	Redis   Redis    `json:"redis"`
}

// A Worst is a client or a route and what was refused to it.
type Worst struct {
	Name           string  `json:"name"`
	Requests       int64   `json:"requests"`
	Refused        int64   `json:"refused"`
	LimitedSeconds float64 `json:"limited_seconds,omitempty"`
	client         int
}

// A Most is the largest number of units in any window of a length.
type Most struct {
	Window   string `json:"window"`
	Offered  int64  `json:"offered,omitempty"`
	Admitted int64  `json:"admitted"`
	Limit    int64  `json:"limit,omitempty"`
}

// Retries are what refused clients did.
type Retries struct {
	// Attempts are all, those of the log included, and RefusedAttempts those that were refused.
	Attempts        int64 `json:"attempts"`
	RefusedAttempts int64 `json:"refused_attempts"`
	// GaveUp are the requests that were never admitted.
	GaveUp int64 `json:"gave_up"`
	// DelaySeconds are of the requests that were admitted after they had been refused.
	DelayMedian float64 `json:"delay_median_seconds"`
	DelayMost   float64 `json:"delay_most_seconds"`
}

// Redis is an estimate of what the candidate takes on Redis.
type Redis struct {
	// Calls are one for each attempt, admitted or not.
	Calls         int64 `json:"calls"`
	CallsInSecond int64 `json:"calls_in_the_worst_second"`
	// Keys and Entries are the most that there were at once, and Bytes is about what they take.
	Keys    int64 `json:"keys"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}
