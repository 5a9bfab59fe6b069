package memstore

import (
	"context"

	"example.com/sash/driver"
	"example.com/sash/internal/window"
)

var _ driver.Hander = (*Store)(nil)

// Hand implements [driver.Hander]. The rotas of a subject are part of its state, but not of a snapshot. The only error is
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
	may, units := true, req.Policy.Limits[0].Units
	if sub := sh.find(hash, req.Key, req.Policy); sub != nil && sub.rotas[units] != nil {
		may = sub.rotas[units].May(now, &line)
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
		rota := sub.rotas[units]
		if rota == nil && !answer.Allowed() {
			rota = new(window.Rota)
			if sub.rotas == nil {
				sub.rotas = make(map[int64]*window.Rota)
			}
			sub.rotas[units] = rota
		}
		if rota != nil {
			rota.Asked(now, &line, answer.Allowed())
		}
	}
	return answer, nil
}
