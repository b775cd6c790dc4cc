-- What clients ask of a slidegate in training, by wrk: mostly what is admitted, much that is denied, and some of all the rest.
-- The paths are those of train.sh.
local kinds = {
  { share = 0.60, path = "/orders/7" },
  { share = 0.20, path = "/denied/7", clients = 100 },
  { share = 0.05, path = "/exact/7", clients = 100 },
  { share = 0.05, path = "/fixed/7", clients = 100 },
  { share = 0.05, path = "/orders/large" },
  { share = 0.05, path = "/orders/8", method = "POST", body = string.rep("x", 4096) },
}

function request()
  local number = math.random()
  for _, kind in ipairs(kinds) do
    number = number - kind.share
    if number <= 0 or kind == kinds[#kinds] then
      return wrk.format(kind.method, kind.path, {
        ["Host"] = "api.example.com",
        ["User-Agent"] = "wrk",
        ["Accept"] = "*/*",
        ["X-API-Key"] = string.format("%016x", math.random(kind.clients or 10000)),
      }, kind.body)
    end
  end
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format("requests, denied, unanswered: %d %d %d", summary.requests, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
