package logs

import (
	"bytes"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
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
	text, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(bytes.ReplaceAll(text, []byte(`"type": "object"`), []byte(`"additionalProperties": false, "type": "object"`))))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("file:///answers.json", schema); err != nil {
		t.Fatal(err)
	}
	long := "broken\n"
	for i := range 5000 { // with clients that are refused, and one that does one thing only
		path, client := "/", i%300
		if i%3 == 0 {
			path, client = "/login", 999
		}
		long += fmt.Sprintf("10.0.%d.%d - - [%02d/May/2015:%02d:%02d:03 +0000] \"GET %s HTTP/1.1\" 401 5 \"-\" \"curl\"\n", client/256, client%256, 17+i/2000, i/100%20, i%60, path)
	}
	one := "start_time,client_ip\n1431857103,66.249.73.135\n1431943503,192.0.2.7\n"
	few := "start_time,client_ip\n"
	for i := range 20 {
		few += fmt.Sprintf("%d,192.0.2.7\n", 1431857103+i)
	}
	for name, tt := range map[string]struct {
		log  string
		args []string
	}{
		"replay": {long, []string{"--try", "10/1m,100/1h", "--try", "9/day@UTC", "--algorithm", "sliding-log,fixed-window"}}, "replay of little": {one, []string{"--try", "9/1m"}},
		"replay, hidden": {long, []string{"--try", "1/1h", "--hide-clients", "--key", "user_agent"}}, "replay of two": {one, []string{"--try", "1/2d"}},
		"suggest": {long, []string{"--affect", "0%"}}, "suggest for many": {long, []string{"--affect", "50%", "--affect-requests", "1%"}},
		"error": {"", []string{"--try", "1/1m"}}, "suggest from little": {few, []string{"--burst", "1s", "--sustained", "2s"}},
	} {
		command, _, _ := strings.Cut(name, " ")
		command = strings.TrimSuffix(command, ",")
		compiled, err := compiler.Compile("file:///answers.json#/$defs/" + command)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		code := Run(append([]string{strings.Replace(command, "error", "replay", 1), "--json"}, tt.args...), strings.NewReader(tt.log), &out, io.Discard)
		got, err := jsonschema.UnmarshalJSON(bytes.NewReader(out.Bytes()))
		if err == nil {
			err = compiled.Validate(got)
		}
		if command != "error" && code != 0 || err != nil {
			t.Errorf("%s: exit %d, %v: %s", name, code, err, out.String())
		}
	}
}

// CSV has a row for each candidate, and leaves warnings to standard error.
func TestAnswersInCSV(t *testing.T) {
	log, header := strings.Repeat("1431857103,192.0.2.7\n", 3), "limits,algorithm,requests,refused,clients,clients_limited,limited_seconds\n"
	for want, args := range map[string][]string{
		"2/1m,sliding-log,3,1,1,1,60\n\"5/1s,9/1m\",sliding-log,3,0,1,0,0\n": {"replay", "--try", "2/1m", "--try", "5/1s,9/1m"},
	} {
		var out, failed bytes.Buffer
		code := Run(append(args, "--csv"), strings.NewReader("time,client_ip\n"+log), &out, &failed)
		if code != 0 || out.String() != header+want || !strings.Contains(failed.String(), "warning: The times of 3 of 3 lines count as ends") {
			t.Errorf("exit %d, %s%s", code, out.String(), failed.String())
		}
	}
}
