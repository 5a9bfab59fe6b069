package serve

import (
	"fmt"
	"strings"

	"example.com/sash/service/internal/config"
)

// reload decides by a configuration that was loaded again, or says what is wrong with it.
func (s *instance) reload(cfg *config.Config, err error) {
	if err == nil {
		err = s.use(cfg)
	}
	if err != nil {
		s.reject(err)
	}
}

// use decides by a valid configuration, unless the decider or Options.MaxRulesRemoved has an error for it.
func (s *instance) use(cfg *config.Config) error {
	removed := rulesRemoved(s.decider.Config(), cfg)
	if err := s.checkRemoved(removed); err != nil {
		return err
	}
	if err := s.decider.Use(cfg); err != nil {
		return err
	}
	s.stats.Use(cfg)
	s.loading.Note(nil)
	s.gate.WarnOfDomains()
	s.stats.Service.ConfigLoaded.Add(1)
	s.warnOf(cfg)
	if len(removed) > 0 {
		s.Log.Warn("rules were removed from the configuration: what only they limited is unlimited", "removed", len(removed), "rules", some(removed))
	}
	s.Log.Info("the configuration was changed", "domains", strings.Join(cfg.Domains(), ", "), "rules", len(cfg.Rules()))
	return nil
}

// reject says what is wrong with a configuration that is not used.
func (s *instance) reject(err error) {
	s.loading.Note(err)
	s.stats.Service.ConfigErrors.Add(1)
	if s.decider.Config().Loaded() {
		s.Log.Error("the changed configuration is wrong: the last valid one stays in use", "error", err)
	} else {
		s.Log.Error("the first configuration is wrong: until there is a valid one, every request is answered with an error", "error", err)
	}
}

// checkRemoved returns an error for more removed rules than an operator allows at once: a file may have been cut off.
func (s *instance) checkRemoved(removed []string) error {
	if s.MaxRulesRemoved == nil || len(removed) <= *s.MaxRulesRemoved {
		return nil
	}
	return fmt.Errorf("%d rules are missing, and a reload may remove %d (--max-rules-removed): put them back, or restart the service without them: %s",
		len(removed), *s.MaxRulesRemoved, some(removed))
}

// rulesRemoved returns the rules that the second configuration does not have any more.
func rulesRemoved(before, after *config.Config) (names []string) {
	for _, change := range config.Diff(before, after) {
		if change.After == "" {
			names = append(names, change.Rule)
		}
	}
	return names
}

// some returns the first names of a list that may be long.
func some(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// warnOf logs what the configuration accepts and probably does not mean.
func (s *instance) warnOf(cfg *config.Config) {
	for _, warning := range cfg.Warnings() {
		s.Log.Warn("the configuration may not be what was meant", "warning", warning)
	}
}
