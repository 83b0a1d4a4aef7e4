import java.io.IOException;
import java.util.Map;
import pilotfish_api.ApiClient;
import pilotfish_api.ApiException;
import pilotfish_api.api.MetadataApi;
import pilotfish_api.api.ProduceApi;
import pilotfish_api.model.ChangesAnswer;
import pilotfish_api.model.LeaderAnswer;
import pilotfish_api.model.ProblemAnswer;
import pilotfish_api.model.ProduceAnswer;
import pilotfish_api.model.ProduceBody;
import pilotfish_api.model.ProduceRecord;
import pilotfish_api.model.Snapshot;

/** Typed calls with the generated Java client: produce, look up, watch. Arguments: the sidecar's URL, a token. */
public final class UseClient {
    private UseClient() {}

    public static void main(String[] arguments) throws ApiException, IOException {
        ApiClient client = new ApiClient();
        client.updateBaseUri(arguments[0]);
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + arguments[1]));
        ProduceApi produce = new ProduceApi(client);
        MetadataApi metadata = new MetadataApi(client);

        ProduceRecord record = new ProduceRecord().key("customer-7").value(Map.of("total", 12.5));
        ProduceAnswer produced =
                produce.produceRecords("orders", new ProduceBody().addRecordsItem(record), null, null, null);
        Long partition = produced.getResults().get(0).getPartition();
        check(partition != null && produced.getResults().get(0).getError() == null, produced);

        LeaderAnswer leader =
                metadata.lookUpLeader("orders", null, null, null, partition, null, null, null, null);
        check("127.0.0.1".equals(leader.getLeader().getHost()), leader);

        try {
            metadata.getTopic("missing", null, null, null, null);
            throw new AssertionError("the topic is missing");
        } catch (ApiException refused) {
            check(refused.getCode() == 404, refused);
            ProblemAnswer problem =
                    client.getObjectMapper().readValue(refused.getResponseBody(), ProblemAnswer.class);
            check("UNKNOWN_TOPIC_OR_PARTITION".equals(problem.getKafkaError()), problem);
        }

        Snapshot snapshot = metadata.getSnapshot(null);
        check(snapshot.getTopics().stream().anyMatch(topic -> topic.getName().equals("orders")), snapshot);
        ChangesAnswer changes = metadata.pollChanges(snapshot.getVersion(), null, 0L);
        check(changes.getChanges().isEmpty(), changes);
    }

    private static void check(boolean holds, Object answer) {
        if (!holds) {
            throw new AssertionError(answer);
        }
    }
}
