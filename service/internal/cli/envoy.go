package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"example.com/sash/service/internal/config"
	"example.com/sash/service/internal/quota"
	"example.com/sash/service/internal/serve"
)

func (a *app) configEnvoy() *cobra.Command {
	var domain, before, cluster string
	var merge, forQuota bool
	cmd := &cobra.Command{
		Use:     "envoy PATH --quota",
		Short:   "Print Envoy's filter for quota over the rules of a domain that have a lease",
		Example: "  sash config envoy limits.yaml --domain demo --quota",
		Args:    exactly("a PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, _, err := a.load(args[0], merge)
			if err != nil {
				return err
			}
			if domain, err = serve.Domain(cfg, domain); err != nil {
				return err
			}
			rule, known := map[string]string{"deny": "DENY_ALL", "allow": "ALLOW_ALL"}[before]
			switch {
			case !forQuota:
				return errors.New("give --quota: the filter that asks for each request is in docs/envoy.md")
			case !known:
				return fmt.Errorf("--no-assignment %q must be deny or allow: a token bucket there ends Envoy 1.40 with a segmentation fault", before)
			}
			return a.quotaFilter(cfg, domain, rule, cluster)
		},
	}
	f := cmd.Flags()
	f.StringVar(&domain, "domain", "", "`domain` of the filter (default: the only one)")
	f.StringVar(&before, "no-assignment", "deny", "what Envoy does before it has quota: `deny`, or allow, which admits uncounted what comes until then")
	f.StringVar(&cluster, "cluster", "sash", "Envoy's `cluster` of the service")
	f.BoolVar(&forQuota, "quota", false, "the filter rate_limit_quota")
	mergeFlag(f, &merge)
	return cmd
}

type object = map[string]any

// typed returns a message with its type.
func typed(name string, fields object) object {
	fields["@type"] = "type.googleapis.com/" + name
	return fields
}

// quotaFilter writes the filter. Deeper rules and those with values come first, as the service finds rules.
func (a *app) quotaFilter(cfg *config.Config, domain, before, cluster string) error {
	var rules []*config.Rule
	for _, r := range cfg.Rules() {
		switch text := fmt.Sprint(r); {
		case r.Domain != domain:
		case r.Place.Lease < quota.MinLease, strings.Contains(text, "*"):
			if _, err := fmt.Fprintf(a.out, "# not %s: a rule has a lease of at least %v and no *\n", text, quota.MinLease); err != nil {
				return err
			}
		default:
			rules = append(rules, r)
		}
	}
	values := func(r *config.Rule) (n int) {
		for i, e := range r.Path {
			if e.Value != "" {
				n += 1 << (16 - min(i, 16))
			}
		}
		return n
	}
	slices.SortStableFunc(rules, func(a, b *config.Rule) int {
		return 1_000_000*(len(b.Path)-len(a.Path)) + values(b) - values(a)
	})
	var matchers []object
	for _, r := range rules {
		matchers = append(matchers, matcher(r, before))
	}
	if len(matchers) == 0 {
		return fmt.Errorf("no rule of the domain %s can be granted: give one a lease of at least %v", domain, quota.MinLease)
	}
	const filter = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig"
	text, err := yaml.Marshal([]object{{"name": "envoy.filters.http.rate_limit_quota", "typed_config": typed(filter, object{
		"domain": domain, "rlqs_server": object{"envoy_grpc": object{"cluster_name": cluster}},
		"bucket_matchers": object{"matcher_list": object{"matchers": matchers}},
	})}})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.out, "# Each key is the header that has its value. Put in what your requests have.\n%s", text)
	return err
}

// matcher returns the bucket of the requests of a rule. While there is no quota they are denied, or at the beginning as before says.
func matcher(r *config.Rule, before string) object {
	var predicates []object
	id := object{}
	for _, e := range r.Path {
		header := func() object {
			return object{"name": "header", "typed_config": typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", object{"header_name": e.Key})}
		}
		value, built := object{"exact": e.Value}, object{"string_value": e.Value}
		if e.Value == "" {
			value, built = object{"safe_regex": object{"google_re2": object{}, "regex": ".+"}}, object{"custom_value": header()}
		}
		predicates = append(predicates, object{"single_predicate": object{"input": header(), "value_match": value}})
		id[e.Key] = built
	}
	predicate := predicates[0]
	if len(predicates) > 1 {
		predicate = object{"and_matcher": object{"predicate": predicates}}
	}
	blanket := func(rule string) object { return object{"fallback_rate_limit": object{"blanket_rule": rule}} }
	expired := blanket("DENY_ALL")
	expired["expired_assignment_behavior_timeout"] = "60s"
	settings := typed("envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings", object{
		"bucket_id_builder": object{"bucket_id_builder": id}, "reporting_interval": "5s",
		"no_assignment_behavior": blanket(before), "expired_assignment_behavior": expired,
	})
	return object{"predicate": predicate, "on_match": object{"action": object{"name": "quota", "typed_config": settings}}}
}
