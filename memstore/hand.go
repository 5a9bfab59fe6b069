package memstore

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

var _ driver.Hander = (*Store)(nil)

// Hand implements [driver.Hander]. The rota of a subject is part of its state, but not of a snapshot. The only error is
// [ErrFull].
func (s *Store) Hand(_ context.Context, req driver.Request, line driver.Line) (answer driver.Answer, _ error) {
	hash := s.hash(req.Key)
	sh := s.shard(hash)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	now := sh.clock.now()
	if line.Back != 0 {
		sh.settle(now, hash, &driver.Settlement{Request: req, At: line.Back})
	}
	may := true
	if sub := sh.find(hash, req.Key, req.Policy); sub != nil && sub.rota != nil {
		may = sub.rota.May(now, &line)
	}
	asked := req
	if !may {
		asked.Cost = 0
	}
	if !sh.decide(now, hash, &asked, &answer) {
		return driver.Answer{}, ErrFull
	}
	if !may {
		left := answer.Statuses()[0]
		left.Retry = line.Stays
		answer.Set(now, 1, []driver.Status{left})
	}
	if sub := sh.find(hash, req.Key, req.Policy); sub != nil {
		if sub.rota == nil {
			sub.rota = new(window.Rota)
		}
		sub.rota.Asked(now, &line, answer.Allowed())
	}
	return answer, nil
}
