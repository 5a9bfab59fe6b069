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
)

func (a *app) configEnvoy() *cobra.Command {
	var domain, before string
	var forQuota bool
	cmd := &cobra.Command{
		Use:     "envoy PATH --quota",
		Short:   "Print Envoy's filter for quota over the rules of a domain that have a lease",
		Example: "  sash config envoy limits.yaml --domain demo --quota",
		Args:    exactly("a PATH"),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, domain, err := a.loadDomain(args[0], domain)
			if err != nil {
				return err
			}
			rule, known := map[string]string{"deny": "DENY_ALL", "allow": "ALLOW_ALL"}[before]
			switch {
			case !forQuota:
				return errors.New("give --quota: the filter that asks for each request is in docs/envoy.md")
			case !known:
				return fmt.Errorf("--no-assignment %q must be deny or allow: a token bucket there ends Envoy 1.40 with a segmentation fault", before)
			}
			text, err := quotaFilter(cfg, domain, rule)
			if err == nil {
				_, err = fmt.Fprint(a.out, text)
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&domain, "domain", "", "`domain` of the filter (default: the only one)")
	f.StringVar(&before, "no-assignment", "deny", "what Envoy does before it has quota: `deny`, or allow, which charges later what came until then")
	f.BoolVar(&forQuota, "quota", false, "the filter rate_limit_quota")
	return cmd
}

// noHeaders are keys of Envoy's rate limit filter that are not headers. Clients could send headers with these names.
var noHeaders = []string{
	"remote_address", "masked_remote_address", "generic_key", "header_match", "query_match", "source_cluster", "destination_cluster",
}

type object = map[string]any

func typed(name string, fields object) object {
	fields["@type"] = "type.googleapis.com/" + name
	return fields
}

// quotaFilter returns the filter. The deepest rules come first, because a request with all their keys belongs to them.
func quotaFilter(cfg *config.Config, domain, before string) (string, error) {
	text := "# Each key is the header that has its value, and sash the cluster of the service: put in yours.\n" +
		"# The filter does not limit requests without these headers.\n"
	var matchers []object
	rules := slices.Clone(cfg.Rules())
	slices.SortStableFunc(rules, func(a, b *config.Rule) int { return len(b.Path) - len(a.Path) })
	for _, r := range rules {
		switch name := r.String(); {
		case r.Domain != domain:
		case r.Place.Lease < quota.MinLease, r.Tokens != nil, strings.Contains(name, "*"),
			slices.ContainsFunc(r.Path, func(e config.Entry) bool { return slices.Contains(noHeaders, e.Key) }):
			text += fmt.Sprintf("# Left out is %s: the filter has rules with a lease of at least %v, without * and tokens, by headers.\n", name, quota.MinLease)
		default:
			matchers = append(matchers, matcher(r, before))
		}
	}
	const filter = "envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig"
	out, err := yaml.Marshal([]object{{"name": "envoy.filters.http.rate_limit_quota", "typed_config": typed(filter, object{
		"domain": domain, "rlqs_server": object{"envoy_grpc": object{"cluster_name": "sash"}},
		"bucket_matchers": object{"matcher_list": object{"matchers": matchers}},
	})}})
	if len(matchers) == 0 {
		err = fmt.Errorf("no rule of the domain %s can be in the filter: give one a lease of at least %v", domain, quota.MinLease)
	}
	return text + string(out), err
}

// matcher returns the quota bucket for the requests of a rule. Before says how Envoy treats them before it
// receives a quota. When a quota has expired, Envoy denies them for a year instead of its default minute.
func matcher(r *config.Rule, before string) object {
	var predicates []object
	id := object{}
	for _, e := range r.Path {
		header := object{"name": "header", "typed_config": typed("envoy.type.matcher.v3.HttpRequestHeaderMatchInput", object{"header_name": e.Key})}
		value, built := object{"exact": e.Value}, object{"string_value": e.Value}
		if e.Value == "" {
			value, built = object{"safe_regex": object{"google_re2": object{}, "regex": ".+"}}, object{"custom_value": header}
		}
		predicates = append(predicates, object{"single_predicate": object{"input": header, "value_match": value}})
		id[e.Key] = built
	}
	predicate := predicates[0]
	if len(predicates) > 1 {
		predicate = object{"and_matcher": object{"predicate": predicates}}
	}
	settings := typed("envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaBucketSettings", object{
		"bucket_id_builder": object{"bucket_id_builder": id}, "reporting_interval": "5s",
		"no_assignment_behavior":      object{"fallback_rate_limit": object{"blanket_rule": before}},
		"expired_assignment_behavior": object{"fallback_rate_limit": object{"blanket_rule": "DENY_ALL"}, "expired_assignment_behavior_timeout": "31536000s"},
	})
	return object{"predicate": predicate, "on_match": object{"action": object{"name": "quota", "typed_config": settings}}}
}
