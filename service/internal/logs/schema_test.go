package logs

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"example.com/sash/service/internal/servertest"
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
		"$defs": map[string]any{"replay": schemaOf(reflect.TypeFor[replayReport]()), "suggest": schemaOf(reflect.TypeFor[suggestReport]()),
			"error": schemaOf(reflect.TypeFor[struct {
				Error string `json:"error"`
			}]())},
	}, "", "\t")
	if err == nil && *update {
		err = os.WriteFile(schemaFile, append(got, '\n'), 0o600)
	}
	want, failed := os.ReadFile(schemaFile)
	if err != nil || failed != nil || !bytes.Equal(append(got, '\n'), want) {
		t.Errorf("%v, %v: %s is not the schema of the answers", err, failed, schemaFile)
	}
}

// Every kind of answer is as the schema says, and has nothing that the schema does not.
func TestAnswersKeepToTheSchema(t *testing.T) {
	text, _ := os.ReadFile(schemaFile)
	schema, err := jsonschema.UnmarshalJSON(strings.NewReader(strings.ReplaceAll(string(text), `"type": "object"`, `"additionalProperties": false, "type": "object"`)))
	compiler := jsonschema.NewCompiler()
	servertest.Check(t, errors.Join(err, compiler.AddResource("file:///answers", schema)))
	long, few := "broken\n", "start_time,client_ip\n"
	for i := range 5000 { // with clients that are refused, and one that does one thing only
		path, client := "/", i%300
		if i%3 == 0 {
			path, client = "/login", 999
		}
		long += fmt.Sprintf("10.0.%d.%d - - [%02d/May/2015:%02d:%02d:03 +0000] \"GET %s HTTP/1.1\" 401 5 \"-\" \"curl\"\n", client/256, client%256, 17+i/2000, i/100%20, i%60, path)
		few += fmt.Sprintf("%d,66.249.73.%d\n", 1431857103+i, i%7)
	}
	for _, tt := range []struct{ kind, log, args string }{
		{"replay", long, "replay --try 10/1m,100/1h --try 9/day@UTC --algorithm sliding-log,fixed-window"}, {"replay", few[:60], "replay --try 1/2d"},
		{"replay", long, "replay --try 1/1h --hide-clients --key user_agent"}, {"suggest", long, "suggest --affect 0%"},
		{"suggest", long, "suggest --affect 50% --affect-requests 1%"}, {"suggest", few[:600], "suggest --burst 1s --sustained 2s"}, {"error", "", "replay --try 1/1m"},
	} {
		var out bytes.Buffer
		_ = Run(append(strings.Fields(tt.args), "--json"), strings.NewReader(tt.log), &out, io.Discard)
		compiled, failed := compiler.Compile("file:///answers#/$defs/" + tt.kind)
		answer, err := jsonschema.UnmarshalJSON(&out)
		servertest.Check(t, cmp.Or(failed, err))
		if err := compiled.Validate(answer); err != nil {
			t.Errorf("%s: %v: %v", tt.args, err, answer)
		}
	}
}

// CSV has a row for each candidate, and leaves warnings to standard error.
func TestAnswersInCSV(t *testing.T) {
	var out, failed bytes.Buffer
	code := Run(strings.Fields("replay --csv --try 2/1m --try 5/1s,9/1m"), strings.NewReader("time,client_ip\n"+strings.Repeat("1431857103,192.0.2.7\n", 3)), &out, &failed)
	want := "limits,algorithm,requests,refused,clients,clients_limited,limited_seconds\n2/1m,sliding-log,3,1,1,1,60\n\"5/1s,9/1m\",sliding-log,3,0,1,0,0\n"
	if code != 0 || out.String() != want || !strings.Contains(failed.String(), "warning: The times of 3 of 3 lines count as ends") {
		t.Errorf("exit %d, %s%s", code, out.String(), failed.String())
	}
	log := "time,client_ip\n"
	for i := range 500 {
		log += fmt.Sprintf("%d,192.0.2.%d\n", 1431857103+i*10*(i/400), i/400*(i%9))
	}
	if _ = Run(strings.Fields("suggest --csv --affect 50% --burst 1s --sustained 10s"), strings.NewReader(log), &out, &failed); !strings.Contains(failed.String(), "WARNING: ") {
		t.Errorf("%s%s", out.String(), failed.String())
	}
}
