/** Questions to the backend that this page came from. */

/** The backend said no, or nothing that can be read; the message is for people. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  /** @param status Of the answer; null if there was none. */
  constructor(
    message: string,
    readonly status: number | null,
  ) {
    super(message);
  }
}

/** Where the page lives; a reverse proxy may have put it under a path. */
export const BASE = new URL(".", document.baseURI).href;

export async function ask(path: string, signal?: AbortSignal): Promise<unknown> {
  let response: Response;
  try {
    response = await fetch(new URL(path, BASE), { headers: { accept: "application/json" }, ...(signal ? { signal } : {}) });
  } catch (error) {
    if (error instanceof TypeError) throw new ApiError("The dashboard's server does not answer.", null);
    throw error;
  }
  const body: unknown = await response.json().catch((error: unknown) => {
    if (error instanceof SyntaxError) return null;
    throw error;
  });
  if (response.ok && body !== null) return body;
  const detail = typeof body === "object" && body !== null && "detail" in body ? body.detail : null;
  throw new ApiError(typeof detail === "string" ? detail : `The server answered ${response.status} to ${path}.`, response.status);
}

/** What the server says to a visitor it does not let in; null if it lets this one in or does not answer. */
export async function refusal(): Promise<string | null> {
  try {
    await ask("api/status");
    return null;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return error.status === 401 || error.status === 403 ? error.message : null;
  }
}
