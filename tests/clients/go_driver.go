// Makes calls with the generated Go client: JSON on stdin, and the answers as JSON on stdout.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"

	"pilotfish_api"
)

type call struct {
	Operation, Base, Path string
	Places                map[string]map[string]json.RawMessage
	Body                  json.RawMessage
}

type answer struct {
	Status int     `json:"status"`
	Type   *string `json:"type"`
	Body   any     `json:"body"`
}

const atOnce = 8

var (
	file     = reflect.TypeOf((*os.File)(nil))
	names    = regexp.MustCompile("{([^}]*)}")
	noLetter = regexp.MustCompile("[^a-z0-9]")
)

func main() {
	var asked struct {
		Token string
		Calls []call
	}
	must(json.NewDecoder(os.Stdin).Decode(&asked))
	answers := make([]answer, len(asked.Calls))
	permits := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for index, one := range asked.Calls {
		all.Add(1)
		permits <- struct{}{}
		go func(index int, one call) {
			defer all.Done()
			answers[index] = made(one, asked.Token)
			<-permits
		}(index, one)
	}
	all.Wait()
	must(json.NewEncoder(os.Stdout).Encode(answers))
}

func made(one call, token string) answer {
	configuration := pilotfish_api.NewConfiguration()
	configuration.Servers = pilotfish_api.ServerConfigurations{{URL: one.Base}}
	client := reflect.ValueOf(pilotfish_api.NewAPIClient(configuration)).Elem()
	var operation reflect.Value
	for i := 0; i < client.NumField() && !operation.IsValid(); i++ {
		if strings.HasSuffix(client.Type().Field(i).Name, "API") {
			operation = method(client.Field(i), one.Operation)
		}
	}
	ctx := context.WithValue(context.Background(), pilotfish_api.ContextAccessToken, token)
	arguments := []reflect.Value{reflect.ValueOf(ctx)}
	for i, name := range names.FindAllStringSubmatch(one.Path, -1) {
		arguments = append(arguments, given(one.Places["path"][name[1]], operation.Type().In(i+1)))
	}
	request := operation.Call(arguments)[0]
	for _, place := range []string{"query", "header"} {
		for name, value := range one.Places[place] {
			request = with(method(request, name), value)
		}
	}
	if one.Body != nil {
		request = with(takesBody(request), one.Body)
	}
	return shown(request.MethodByName("Execute").Call(nil))
}

// The method of that name, in any spelling.
func method(of reflect.Value, name string) reflect.Value {
	for i := 0; i < of.NumMethod(); i++ {
		if plain(of.Type().Method(i).Name) == plain(name) {
			return of.Method(i)
		}
	}
	return reflect.Value{}
}

// The method for the body: parameters are texts, numbers and booleans.
func takesBody(request reflect.Value) reflect.Value {
	for i := 0; i < request.NumMethod(); i++ {
		if takes := request.Method(i).Type(); takes.NumIn() == 1 {
			switch takes.In(0).Kind() {
			case reflect.Struct, reflect.Slice, reflect.Ptr, reflect.Interface:
				return request.Method(i)
			}
		}
	}
	log.Fatalf("%v takes no body", request.Type())
	return reflect.Value{}
}

func with(setter reflect.Value, value json.RawMessage) reflect.Value {
	return setter.Call([]reflect.Value{given(value, setter.Type().In(0))})[0]
}

func given(value json.RawMessage, wanted reflect.Type) reflect.Value {
	if wanted == file {
		var text string
		must(json.Unmarshal(value, &text))
		return reflect.ValueOf(holding(text))
	}
	made := reflect.New(wanted)
	must(json.Unmarshal(value, made.Interface()))
	return made.Elem()
}

func holding(text string) *os.File {
	held, err := os.CreateTemp(".", "body")
	must(err)
	_, err = held.WriteString(text)
	must(err)
	_, err = held.Seek(0, io.SeekStart)
	must(err)
	return held
}

func shown(results []reflect.Value) answer {
	response := results[len(results)-2].Interface().(*http.Response)
	var parsed any
	if err, failed := results[len(results)-1].Interface().(error); failed {
		var refused *pilotfish_api.GenericOpenAPIError
		if response == nil || !errors.As(err, &refused) {
			log.Fatal(err)
		}
		parsed = refused.Model()
	} else if len(results) == 3 {
		parsed = results[0].Interface()
	}
	if held, isFile := parsed.(*os.File); isFile {
		content, err := io.ReadAll(held)
		must(err)
		parsed = string(content)
	}
	if parsed == nil {
		return answer{Status: response.StatusCode}
	}
	name := reflect.TypeOf(parsed).String()
	return answer{response.StatusCode, &name, parsed}
}

func plain(name string) string {
	return noLetter.ReplaceAllString(strings.ToLower(name), "")
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
