// Requests to the admin port.

const patience = () => AbortSignal.timeout(5000); // the service answers within two seconds, or hangs

// call returns the JSON of a response. A failed call returns {error, status}, where error is a sentence.
export const call = async (path, body) => {
  try {
    const res = await fetch(path, body === undefined ? { signal: patience() } : {
      method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body), signal: patience(),
    });
    const answer = await res.json();
    if (!res.ok) return { error: answer.error ?? `the service answered with status ${res.status}`, status: res.status };
    return answer;
  } catch {
    return { error: 'the service cannot be reached', status: 503 };
  }
};

// postForm posts a form and returns the error, or null.
export const postForm = async (path, fields = {}) => {
  try {
    const res = await fetch(path, { method: 'POST', body: new URLSearchParams(fields), signal: patience() });
    return res.ok ? null : (await res.json()).error;
  } catch {
    return 'the service cannot be reached';
  }
};
