package verdict

import "time"

// Ban is the name of what refuses a subject that an operator has banned, where others have a limit's.
const Ban = "ban"

// Banned is the verdict on a call of a subject that is banned for so much longer. It is not charged.
func Banned(left time.Duration) Verdict {
	name, none := Ban, int64(0)
	return Verdict{Remaining: &none, RetryAfter: Seconds(left), ResetAfter: Seconds(left), RefusedBy: &name, Limits: []Limit{}}
}
