// SPDX-License-Identifier: Apache-2.0

package front

import (
	"encoding"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"

	"seine/internal/agent"
)

// A Route is one address of the API.
type Route struct {
	Path, Summary string
	Params        []string
	Type          string // of the answer
	Shape         reflect.Type
	serve         func(h *handler) http.HandlerFunc
}

var params = map[string]string{
	"window": "seconds to look at, 1 to 300 (10)",
	"at":     "the second to look at, since 1970; the model has the last five minutes (now)",
	"limit":  "most rows, 1 to 100000 (1000)",
	"id":     "id of a service or of a connection, as in the answers",
	"q":      "what names must contain",
	"tool":   "tool of the recording",
	"where":  "condition for rows, as --where of tools",
	"by":     "columns to group by, as --by of tools",
	"since":  "as --since of tools: 14:02, 10m ago",
	"until":  "as --until of tools",
}

var queryParams = []string{"tool", "where", "by", "since", "until", "limit"}

// Routes are the addresses of the API. The description is generated from them.
func Routes() []Route {
	return []Route{
		fromHolder("services", "services with the time of their turns and where it goes", "window", "at", "limit", "id", "q"),
		fromHolder("connections", "connections, the most recently active first", "limit", "id", "q"),
		fromHolder("connection", "one connection, with its history by the second since the first request for it", "id"),
		fromHolder("findings", "what is wrong, worst first", "window", "at", "limit"),
		fromHolder("timeline", "seconds of a service, or of all", "window", "at", "id"),
		fromHolder("map", "who talks to whom", "window", "at", "limit"),
		fromHolder("status", "state of the agent"),
		{Path: "/api/v1/query", Summary: "rows of the recording, a line of JSON each", Params: queryParams, Type: "application/x-ndjson", serve: func(h *handler) http.HandlerFunc { return h.query }},
		{Path: "/api/v1/events", Summary: "server-sent events: the status, once a second", Type: "text/event-stream", serve: func(h *handler) http.HandlerFunc { return h.events }},
		{Path: "/api/openapi.json", Summary: "this description", Type: "application/json", serve: func(*handler) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Write(OpenAPI())
			}
		}},
		{Path: "/healthz", Summary: "ok while both processes live", Type: "text/plain", serve: func(h *handler) http.HandlerFunc { return h.healthz }},
		{Path: "/readyz", Summary: "ready when the tools are attached", Type: "text/plain", serve: func(h *handler) http.HandlerFunc { return h.readyz }},
	}
}

func fromHolder(what, summary string, params ...string) Route {
	return Route{Path: "/api/v1/" + what, Summary: summary, Params: params, Type: "application/json", Shape: agent.Shapes[what],
		serve: func(h *handler) http.HandlerFunc { return h.holder(what, params) }}
}

// OpenAPI is the description of the API.
func OpenAPI() []byte {
	paths := map[string]any{}
	for _, r := range Routes() {
		content := map[string]any{}
		if r.Shape != nil {
			content["schema"] = schemaOf(r.Shape)
		}
		get := map[string]any{
			"summary":   r.Summary,
			"responses": map[string]any{"200": map[string]any{"description": r.Summary, "content": map[string]any{r.Type: content}}, "default": map[string]any{"$ref": "#/components/responses/problem"}},
		}
		if len(r.Params) > 0 {
			var all []any
			for _, p := range r.Params {
				kind := "string"
				if p == "window" || p == "at" || p == "limit" {
					kind = "integer"
				}
				all = append(all, map[string]any{"name": p, "in": "query", "description": params[p], "schema": map[string]any{"type": kind}})
			}
			get["parameters"] = all
		}
		paths[r.Path] = map[string]any{"get": get}
	}
	paths["/metrics"] = map[string]any{"get": map[string]any{"summary": "metrics for Prometheus, as text or protobuf", "responses": map[string]any{"200": map[string]any{"description": "metrics"}}}}
	out, err := json.MarshalIndent(map[string]any{
		"openapi": "3.1.0",
		"info":    map[string]any{"title": "seine agent", "version": "1", "description": "The network of one machine. Nothing can be changed through it."},
		"paths":   paths,
		"components": map[string]any{"responses": map[string]any{"problem": map[string]any{"description": "it could not be answered", "content": map[string]any{
			"application/json": map[string]any{"schema": map[string]any{"type": "object", "required": []string{"error"}, "properties": map[string]any{"error": map[string]any{"type": "string"}}}}}}}},
	}, "", "  ")
	if err != nil {
		panic(err)
	}
	return append(out, '\n')
}

// schemaOf is the JSON schema of a Go type, as encoding/json writes it.
func schemaOf(t reflect.Type) map[string]any {
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return map[string]any{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.Struct:
		properties, required := map[string]any{}, []string{}
		var add func(t reflect.Type)
		add = func(t reflect.Type) {
			for f := range t.Fields() {
				if f.Anonymous {
					add(f.Type)
					continue
				}
				name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
				properties[name] = schemaOf(f.Type)
				if rest != "omitempty" {
					required = append(required, name)
				}
			}
		}
		add(t)
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	}
	return map[string]any{"type": "integer"}
}
