// Makes calls with openapi-fetch: the token as JSON on stdin, and the answers as JSON on stdout. generators.py writes
// the calls in here, so that the compiler checks each of them.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { paths } from "./schema.js";

type Answer = { data?: unknown; error?: unknown; response: Response };

const AT_ONCE = 8;
const asked: { token: string } = JSON.parse(readFileSync(0, "utf8"));
export const client = createClient<paths>({ headers: { authorization: `Bearer ${asked.token}` } });
const calls: (() => Promise<Answer>)[] = [];

// Node sends a request again that was answered 421, and sometimes fails in that: the first body has not ended yet.
async function answered(call: () => Promise<Answer>): Promise<Answer> {
  for (;;) {
    try {
      return await call();
    } catch (error) {
      const cause: unknown = error instanceof TypeError ? error.cause : undefined;
      if (!(cause instanceof Error && cause.name === "RequestContentLengthMismatchError")) throw error;
    }
  }
}

const answers: unknown[] = [];
const left = calls.entries();
async function work(): Promise<void> {
  for (const [index, call] of left) {
    const { data, error, response } = await answered(call);
    const body = data ?? error ?? null;
    answers[index] = { status: response.status, type: body === null ? null : typeof body, body };
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, work));
process.stdout.write(JSON.stringify(answers));
