import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.File;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Parameter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import pilotfish_api.ApiClient;
import pilotfish_api.ApiException;
import pilotfish_api.ApiResponse;

/** Makes calls with the generated Java client: JSON on stdin, and the answers as JSON on stdout. */
public final class JavaDriver {
    private static final int AT_ONCE = 8;
    private static final ObjectMapper JSON = ApiClient.createDefaultObjectMapper();

    private JavaDriver() {}

    public static void main(String[] arguments) throws Exception {
        JsonNode asked = JSON.readTree(System.in);
        ExecutorService threads = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<ObjectNode>> answers = new ArrayList<>();
        for (JsonNode call : asked.get("calls")) {
            answers.add(threads.submit(() -> answer(call, asked.get("token").asText())));
        }
        threads.shutdown();
        List<ObjectNode> all = new ArrayList<>();
        try {
            for (Future<ObjectNode> each : answers) {
                all.add(each.get());
            }
        } finally {
            threads.shutdownNow(); // after an exception the others need not end
        }
        JSON.writeValue(System.out, all);
    }

    private static ObjectNode answer(JsonNode call, String token) throws Exception {
        ApiClient client = new ApiClient();
        client.updateBaseUri(call.get("base").asText());
        client.setRequestInterceptor(request -> request.header("Authorization", "Bearer " + token));
        Method method = method(call.get("operation").asText());
        Object api = method.getDeclaringClass().getConstructor(ApiClient.class).newInstance(client);
        List<Object> given = new ArrayList<>();
        for (Parameter parameter : method.getParameters()) {
            given.add(given(call, parameter));
        }
        try {
            ApiResponse<?> answer = (ApiResponse<?>) method.invoke(api, given.toArray());
            return shown(answer.getStatusCode(), answer.getData());
        } catch (InvocationTargetException raised) {
            if (!(raised.getCause() instanceof ApiException refused) || refused.getCode() == 0) {
                throw new IllegalStateException(call.toString(), raised.getCause());
            }
            return shown(refused.getCode(), problem(call.get("model").asText(), refused.getResponseBody()));
        }
    }

    /** The longest form of the operation, which has its headers as its last parameter. */
    private static Method method(String operation) throws Exception {
        Method longest = null;
        for (File file : new File("classes/pilotfish_api/api").listFiles()) {
            String name = file.getName().replace(".class", "");
            if (!name.endsWith("Api")) {
                continue;
            }
            for (Method each : Class.forName("pilotfish_api.api." + name).getMethods()) {
                if (each.getName().equals(operation + "WithHttpInfo")
                        && (longest == null || longest.getParameterCount() < each.getParameterCount())) {
                    longest = each;
                }
            }
        }
        return longest;
    }

    private static Object given(JsonNode call, Parameter parameter) throws Exception {
        for (JsonNode place : call.get("places")) {
            for (var named : place.properties()) {
                if (plain(named.getKey()).equals(plain(parameter.getName()))) {
                    return as(named.getValue(), parameter);
                }
            }
        }
        Class<?> type = parameter.getType();
        boolean isSimple = type == String.class || type == Long.class || type == Boolean.class || type.isEnum();
        boolean isBody = !isSimple && !parameter.getName().equals("headers");
        return isBody && call.has("body") ? as(call.get("body"), parameter) : null;
    }

    private static Object as(JsonNode value, Parameter parameter) throws Exception {
        if (parameter.getType() == File.class) {
            return Files.writeString(Files.createTempFile(Path.of("."), "body", ""), value.asText()).toFile();
        }
        return JSON.convertValue(value, JSON.constructType(parameter.getParameterizedType()));
    }

    private static Object problem(String model, String body) throws Exception {
        if (body == null || body.isEmpty() || model.isEmpty()) {
            return null;
        }
        return JSON.readValue(body, Class.forName("pilotfish_api.model." + model));
    }

    private static ObjectNode shown(int status, Object parsed) {
        ObjectNode shown = JSON.createObjectNode().put("status", status);
        shown.put("type", parsed == null ? null : parsed.getClass().getSimpleName());
        return shown.set("body", JSON.valueToTree(parsed));
    }

    private static String plain(String name) {
        return name.toLowerCase(Locale.ROOT).replaceAll("[^a-z0-9]", "");
    }
}
