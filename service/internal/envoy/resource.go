package envoy

import (
	"encoding/json"
	"fmt"

	rls "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"example.com/sash/service/internal/config"
)

// read returns the configuration in resources. It writes them as a file first, so that one parser checks both forms.
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
		if field, found := unknown(&message); found {
			return nil, fmt.Errorf("%s: %s has a field that this version does not know", name, field)
		}
		text, err := text(&message)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[i] = config.File{Name: name, Text: text}
	}
	return config.ParseBy(s.Defaults, s.Merge, files...)
}

// text returns a configuration in JSON, which is YAML, with what files say of a limit: its unit or none, and its units, also if
// they are zero.
func text(message *rls.RateLimitConfig) ([]byte, error) {
	packed, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(message)
	if err != nil {
		return nil, err
	}
	var config map[string]any
	if err := json.Unmarshal(packed, &config); err != nil {
		return nil, err
	}
	delete(config, "name") // of the resource
	if config["domain"] == nil {
		config["domain"] = ""
	}
	var complete func(parent map[string]any)
	complete = func(parent map[string]any) {
		below, _ := parent["descriptors"].([]any)
		for _, d := range below {
			descriptor := d.(map[string]any)
			if descriptor["key"] == nil {
				descriptor["key"] = ""
			}
			if limit, ok := descriptor["rate_limit"].(map[string]any); ok && limit["unlimited"] == nil && limit["requests_per_unit"] == nil {
				limit["requests_per_unit"] = 0
			}
			complete(descriptor)
		}
	}
	complete(config)
	return json.Marshal(config)
}

// unknown finds a message with a field that this version's schema does not have: without the field it would be another
// configuration.
func unknown(m proto.Message) (where string, found bool) {
	_ = protorange.Range(m.ProtoReflect(), func(path protopath.Values) error {
		at, ok := path.Index(-1).Value.Interface().(protoreflect.Message)
		if ok && len(at.GetUnknown()) > 0 {
			where, found = string(at.Descriptor().Name()), true
			return protorange.Terminate
		}
		return nil
	})
	return where, found
}
