package accesslog

import "fmt"

// envoyOperators are those of Envoy's formats that set fields, by names of ours. Its default has no address of the peer.
var envoyOperators = map[string]part{
	"start_time":                {set: setTime, rank: rankTime},
	"method":                    {set: setMethod},
	"path":                      {set: setTarget},
	"response_code":             {set: setStatus},
	"bytes_sent":                {set: setBytes},
	"duration":                  {set: setTook},
	"x_forwarded_for":           {set: text(forwardedOf)},
	"user_agent":                {set: text(agentOf)},
	"authority":                 {set: text(hostOf)},
	"downstream_remote_address": {set: setAddress, rank: rankClient},
	"details":                   {sample: "via upstream"},
}

// envoyLayouts are the default formats of Envoy and of Istio, the longer one first.
var envoyLayouts = []*layout{
	mustCompile(`[$start_time] "$method $path $protocol" $response_code $response_flags $response_code_details $connection_termination_details "$upstream_transport_failure_reason" $bytes_received $bytes_sent $duration $upstream_service_time "$x_forwarded_for" "$user_agent" "$request_id" "$authority" "$upstream_host" $upstream_cluster $upstream_local_address $downstream_local_address $downstream_remote_address $requested_server_name $route_name`),
	mustCompile(`[$start_time] "$method $path $protocol" $response_code $response_flags $bytes_received $bytes_sent $duration $upstream_service_time "$x_forwarded_for" "$user_agent" "$request_id" "$authority" "$upstream_host"`),
}

func mustCompile(format string) *layout {
	l, err := compileVariables(format, envoyOperators)
	if err != nil {
		panic(fmt.Sprintf("a format of this package: %v", err))
	}
	return l
}

// parseEnvoy parses a line of Envoy's or Istio's default text format.
func parseEnvoy(line string, r *Record) (err error) {
	for _, l := range envoyLayouts {
		*r = Record{}
		if err = l.parse([]byte(line), r); err == nil {
			return nil
		}
	}
	return err
}
