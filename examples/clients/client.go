// Which broker leads this key's partition, and a record for it: with Go. Run by `go run client.go`.
package main

import (
	"cmp"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	api := cmp.Or(os.Getenv("SIDECAR_URL"), "http://127.0.0.1:8085") + "/v1/topics/demo"
	show(http.Get(api + "/leader?key=customer-7"))
	records := strings.NewReader(`{"records":[{"key":"customer-7","value":{"total":12.5}}]}`)
	show(http.Post(api+"/records", "application/json", records))
}

func show(answer *http.Response, err error) {
	if err != nil {
		log.Fatal(err)
	}
	defer answer.Body.Close()
	if _, err := io.Copy(os.Stdout, answer.Body); err != nil || answer.StatusCode >= 400 {
		log.Fatal(answer.Status, err)
	}
	os.Stdout.WriteString("\n")
}
