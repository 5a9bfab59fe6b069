package logs

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the schema")

const schemaFile = "../../../docs/sash-logs.schema.json"

// schemaOf describes a type of the answers as JSON Schema.
func schemaOf(t reflect.Type) map[string]any {
	switch kind := t.Kind(); {
	case kind == reflect.Pointer:
		return schemaOf(t.Elem())
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()), kind == reflect.String:
		return map[string]any{"type": "string"}
	case kind == reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case kind == reflect.Bool:
		return map[string]any{"type": "boolean"}
	case kind == reflect.Int || kind == reflect.Int64:
		return map[string]any{"type": "integer"}
	case kind == reflect.Struct:
		properties, required := make(map[string]any), []string{}
		for _, f := range reflect.VisibleFields(t) {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "-" {
				continue
			}
			if properties[name] = schemaOf(f.Type); options == "" {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required}
	}
	return map[string]any{"type": "number"}
}

// The JSON of the commands is what the schema says. A field that goes or changes breaks programs that read it: `go test
// -update` writes the file, for new ones.
func TestTheSchemaIsThatOfTheAnswers(t *testing.T) {
	got, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The answers of sash-logs with --json",
		"$defs": map[string]any{"replay": schemaOf(reflect.TypeFor[replayReport]()), "suggest": schemaOf(reflect.TypeFor[suggestReport]())},
	}, "", "\t")
	if err == nil && *update {
		err = os.WriteFile(schemaFile, append(got, '\n'), 0o600)
	}
	want, failed := os.ReadFile(schemaFile)
	if err != nil || failed != nil || !bytes.Equal(append(got, '\n'), want) {
		t.Errorf("%v, %v: %s is not the schema of the answers", err, failed, schemaFile)
	}
}
