package envoy

import (
	"fmt"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/service/internal/config"
)

// read returns the configuration in resources. It writes them as YAML first, so that one parser checks both forms.
func (s Source) read(resources []*anypb.Any) (*config.Config, error) {
	if len(resources) == 0 {
		return config.Empty(), nil
	}
	files := make([]config.File, len(resources))
	for i, resource := range resources {
		var message rls.RateLimitConfig
		if err := resource.UnmarshalTo(&message); err != nil {
			return nil, fmt.Errorf("resource %d: %w", i, err)
		}
		name := "resource " + message.GetName()
		if field, found := unknown(message.ProtoReflect()); found {
			return nil, fmt.Errorf("%s: %s has a field that this version does not know", name, field)
		}
		text, err := yaml.Marshal(map[string]any{"domain": quoted(message.GetDomain()), "descriptors": descriptors(message.GetDescriptors())})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[i] = config.File{Name: name, Text: text}
	}
	return config.ParseBy(s.Defaults, s.Merge, files...)
}

func descriptors(all []*rls.RateLimitDescriptor) []any {
	out := make([]any, len(all))
	for i, d := range all {
		one := map[string]any{"key": quoted(d.GetKey())}
		if d.GetValue() != "" {
			one["value"] = quoted(d.GetValue())
		}
		if d.GetShadowMode() {
			one["shadow_mode"] = true
		}
		if d.GetQuotaMode() {
			one["quota_mode"] = true
		}
		if d.GetMetadata() != nil {
			one["metadata"] = d.GetMetadata().AsMap()
		}
		if d.GetDetailedMetric() {
			one["detailed_metric"] = true
		}
		if limit := d.GetRateLimit(); limit != nil {
			one["rate_limit"] = rateLimit(limit)
		}
		if len(d.GetDescriptors()) > 0 {
			one["descriptors"] = descriptors(d.GetDescriptors())
		}
		out[i] = one
	}
	return out
}

// quoted returns a string that is read as one, whatever it looks like.
func quoted(text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: text}
}

func rateLimit(limit *rls.RateLimitPolicy) map[string]any {
	out := map[string]any{}
	if limit.GetUnlimited() {
		out["unlimited"] = true
	} else {
		out["requests_per_unit"] = limit.GetRequestsPerUnit()
	}
	if unit := limit.GetUnit(); unit != rls.RateLimitUnit_UNKNOWN {
		out["unit"] = strings.ToLower(unit.String())
	}
	if limit.GetName() != "" {
		out["name"] = quoted(limit.GetName())
	}
	if len(limit.GetReplaces()) > 0 {
		var names []any
		for _, r := range limit.GetReplaces() {
			names = append(names, map[string]any{"name": quoted(r.GetName())})
		}
		out["replaces"] = names
	}
	return out
}

// unknown finds a message with a field that this version's schema does not have: without the field it would be another
// configuration.
func unknown(m protoreflect.Message) (where string, found bool) {
	if len(m.GetUnknown()) > 0 {
		return string(m.Descriptor().Name()), true
	}
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.Kind() != protoreflect.MessageKind || field.IsMap(): // the map is that of metadata
		case field.IsList():
			for i := range value.List().Len() {
				if where, found = unknown(value.List().Get(i).Message()); found {
					return false
				}
			}
		default:
			where, found = unknown(value.Message())
		}
		return !found
	})
	return where, found
}
