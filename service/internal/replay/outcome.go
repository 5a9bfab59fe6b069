package replay

// An Outcome is what a candidate would have done.
type Outcome struct {
	// Limits are the candidate's limits, as written.
	Limits    []string `json:"limits"`
	Policy    string   `json:"policy,omitempty"`
	Algorithm string   `json:"algorithm"`

	// Partial means that the replay was stopped before its end, after Requests of the log. All counts are of these.
	Partial bool `json:"partial,omitempty"`
	// Requests are those of the log. Refused counts those whose first attempt was refused.
	Requests     int64   `json:"requests"`
	Refused      int64   `json:"refused"`
	RefusedShare float64 `json:"refused_share"`
	// FirstRefused is the time of the first refusal, in RFC 3339: when a quota ran out. It is empty without refusals.
	FirstRefused string `json:"first_refused,omitempty"`
	// AboveLimit counts refused requests that cost more units than a limit has. They can never fit.
	AboveLimit int64 `json:"above_limit"`
	// RefusedBy counts the refused requests by limit.
	RefusedBy map[string]int64 `json:"refused_by"`
	// ClientsLimited counts the clients that were refused at least once.
	ClientsLimited      int64   `json:"clients_limited"`
	ClientsLimitedShare float64 `json:"clients_limited_share"`
	// LimitedSeconds is the total time for which clients were limited, each from a refusal until the refused request
	// would fit.
	LimitedSeconds float64 `json:"limited_seconds"`

	WorstClients []Worst `json:"worst_clients"`
	WorstRoutes  []Worst `json:"worst_routes"`

	// OneClient is the most units that one client got in any sliding window of each limit. With an exact algorithm that
	// is never more than the limit.
	OneClient []Most `json:"one_client"`
	// AllClients is the most units that all clients together requested, and got, in any minute.
	AllClients Most `json:"all_clients"`

	Redis Redis `json:"redis"`
}

// A Worst is a client or a route and its refusals.
type Worst struct {
	Name           string  `json:"name"`
	Client         string  `json:"-"` // the name that the key expression returned, also where names are hidden
	Requests       int64   `json:"requests"`
	Refused        int64   `json:"refused"`
	LimitedSeconds float64 `json:"limited_seconds,omitempty"`
}

// A Most is the largest number of units in any window of a length.
type Most struct {
	Window   string `json:"window"`
	Offered  int64  `json:"offered,omitempty"`
	Admitted int64  `json:"admitted"`
	Limit    int64  `json:"limit,omitempty"`
}

// Redis is an estimate of the candidate's cost on Redis.
type Redis struct {
	// Calls counts one call per attempt, admitted or not.
	Calls int64 `json:"calls"`
	// Keys and Entries are the greatest numbers at one time, and Bytes is approximately the memory that they take.
	Keys    int64 `json:"keys"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
}
