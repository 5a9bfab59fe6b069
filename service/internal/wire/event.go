package wire

import "example.com/sash/service/internal/stats"

// An Event is the state of a service, as the admin port streams it once a second.
type Event struct {
	At            Instant        `json:"at"`
	Since         Instant        `json:"since"` // when counting began
	Authenticated bool           `json:"authenticated"`
	Requests      stats.Series   `json:"requests"`
	Rules         []stats.Series `json:"rules"`
	// Latency is how long the store took to decide, and with it the network and the queue in front of it.
	Latency stats.Latency `json:"latency"`
	Store   Store         `json:"store"`
	Top     *Top          `json:"top"` // null to callers without access
}

// A Store is the state of a service's store.
type Store struct {
	Status string `json:"status"` // ok, degraded or draining
	Store  string `json:"store"`  // up, down, probing, or memory
	// Address is where it is, without user and password; null in memory.
	Address *string `json:"address"`
	// Cause is why it is not up, as one of decide.Causes, Reason the same in words, and Error the last failure, which only
	// callers with access get.
	Cause  *string `json:"cause"`
	Reason *string `json:"reason"`
	Error  *string `json:"error"`
	// Uncounted is how many requests went ahead that nothing counts: since Since while it is not up, and otherwise in the
	// last outage.
	Uncounted int64 `json:"uncounted"`
	// Since is when it went down or came back, and For how long ago; null when none of these happened.
	Since *Instant `json:"since"`
	For   *Seconds `json:"for"`
	// Home is the store that all regions share; left out without one.
	Home *Home `json:"home,omitempty"`
	// Instances is how many share the limits; 0 while that is not known.
	Instances int   `json:"instances"`
	InFlight  int   `json:"in_flight"`
	Local     Local `json:"local"`
	// Memory is how full the store in this process's memory is; null in tests without one.
	Memory *Memory `json:"memory"`
	// Overrides and Bans are how many hold; they were last read at ExceptionsReadAt.
	Overrides         int      `json:"overrides"`
	Bans              int      `json:"bans"`
	ExceptionsReadAt  *Instant `json:"exceptions_read_at"`
	ExceptionsCurrent bool     `json:"exceptions_current"`
}

// A Home is the state of the store that all regions share, and what this instance did there since it started.
type Home struct {
	State   string `json:"state"` // up or down
	Address string `json:"address"`
	// Since is when it stopped answering; null while it is up.
	Since *Instant `json:"since"`
	// Way is how long a call takes. Failed counts Calls without an answer.
	Way    Seconds `json:"way"`
	Calls  int64   `json:"calls"`
	Failed int64   `json:"failed"`
	// Leased are units that this instance fetched, Spent those that calls of it spent, whoever fetched them, and Returned
	// those that it gave back unspent.
	Leased   int64 `json:"leased"`
	Spent    int64 `json:"spent"`
	Returned int64 `json:"returned"`
}

// Memory is how full a store in memory is: see memstore.Stats.
type Memory struct {
	Subjects    int    `json:"subjects"`
	MaxSubjects int    `json:"max_subjects"`
	Evicted     uint64 `json:"evicted"`
	TurnedAway  uint64 `json:"turned_away"`
}

// Local is what was admitted locally while the store was unavailable: see failover.Stats.
type Local struct {
	Backlog  int64 `json:"backlog"`
	Written  int64 `json:"written"`
	Lost     int64 `json:"lost"`
	Doubtful int64 `json:"doubtful"`
}

// A Top is the subjects that ask for most units and those that are refused most.
type Top struct {
	Since   Instant         `json:"since"`
	Units   []stats.Subject `json:"units"`
	Refused []stats.Subject `json:"refused"`
}
