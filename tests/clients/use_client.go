// Typed calls with the generated Go client: produce, look up, watch. Arguments: the sidecar's URL, a token.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"strings"

	"pilotfish_api"
)

func main() {
	configuration := pilotfish_api.NewConfiguration()
	configuration.Servers = pilotfish_api.ServerConfigurations{{URL: os.Args[1]}}
	client := pilotfish_api.NewAPIClient(configuration)
	ctx := context.WithValue(context.Background(), pilotfish_api.ContextAccessToken, os.Args[2])

	record := pilotfish_api.NewProduceRecord(map[string]interface{}{"total": 12.5})
	record.SetKey("customer-7")
	body := pilotfish_api.NewProduceBody([]pilotfish_api.ProduceRecord{*record})
	produced, _, err := client.ProduceAPI.ProduceRecords(ctx, "orders").ProduceBody(*body).Execute()
	must(err)
	result := produced.GetResults()[0]
	check(result.HasPartition() && !result.HasError(), produced)

	value := holding("any bytes")
	bytes, _, err := client.ProduceAPI.ProduceBytes(ctx, "orders").Key("customer-7").Body(value).Execute()
	must(err)
	check(bytes.GetResults()[0].GetPartition() == result.GetPartition(), bytes)

	lines := holding("{\"value\":1}\n{\"value\":2}\n")
	stream, _, err := client.ProduceAPI.ProduceStream(ctx, "orders").Body(lines).Execute()
	must(err)
	outcomes, err := io.ReadAll(stream)
	must(err)
	check(strings.Contains(string(outcomes), "\"acknowledged\":2"), string(outcomes))

	leader, _, err := client.MetadataAPI.LookUpLeader(ctx, "orders").Partition(result.GetPartition()).Execute()
	must(err)
	check(leader.Leader.Get().GetHost() == "127.0.0.1", leader)

	_, answer, err := client.MetadataAPI.GetTopic(ctx, "missing").Execute()
	var refused *pilotfish_api.GenericOpenAPIError
	check(errors.As(err, &refused) && answer.StatusCode == 404, err)
	problem, ok := refused.Model().(pilotfish_api.ProblemAnswer)
	check(ok && problem.GetKafkaError() == "UNKNOWN_TOPIC_OR_PARTITION", problem)

	snapshot, _, err := client.MetadataAPI.GetSnapshot(ctx).Execute()
	must(err)
	check(len(snapshot.GetTopics()) > 0, snapshot)
	changes, _, err := client.MetadataAPI.PollChanges(ctx).LastEventId(snapshot.GetVersion()).MaxBlockMs(0).Execute()
	must(err)
	check(len(changes.GetChanges()) == 0, changes)
}

func holding(text string) *os.File {
	file, err := os.CreateTemp("", "body")
	must(err)
	_, err = file.WriteString(text)
	must(err)
	_, err = file.Seek(0, io.SeekStart)
	must(err)
	return file
}

func must(err error) {
	if err != nil {
		var refused *pilotfish_api.GenericOpenAPIError
		if errors.As(err, &refused) {
			log.Fatal(err, string(refused.Body()))
		}
		log.Fatal(err)
	}
}

func check(holds bool, answer any) {
	if !holds {
		log.Fatalf("%+v", answer)
	}
}
