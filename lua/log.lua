-- The log of an identifier that is audited: the units admitted in the trailing window, each with its moment.
-- A sorted set, one member for each unit, scored by the moment; README.md is the contract.

-- The member that is no unit. Its score is a moment: of all after it, the log has every unit.
local SINCE = 'since'
-- Two values each, and a Lua function takes fewer than 8,000.
local UNITS_AT_ONCE = 1000

-- Whether the call has such an identifier: else none of this is made.
local audited = ARGV[2] == 'audit'
local fault, logged, add_to_log

if audited then
  -- The text of what pcall caught.
  function fault(caught)
    return type(caught) == 'table' and caught.err or tostring(caught)
  end

  -- The units admitted after the moment `from`, or nothing where the log cannot tell. `counted` are the units
  -- of the counters: where there are none, none can be missing.
  function logged(key, from, counted)
    local since = tonumber(call('ZSCORE', key, SINCE) or counted == 0 and from)
    return since and since <= from and call('ZCOUNT', key, format('(%.0f', from), '+inf')
  end

  -- Adds units admitted at `moment`, drops those up to `from`, and sets the time to live. A log that has `most`
  -- units takes no more, and cannot tell until these have left.
  function add_to_log(key, moment, from, counted, units, most, expire, time)
    local since = tonumber(call('ZSCORE', key, SINCE) or counted == 0 and from or moment)
    since = max(since, from)
    call('ZREMRANGEBYSCORE', key, '-inf', format('%.0f', from))
    call('ZADD', key, format('%.0f', since), SINCE)
    call(expire, key, time)
    local room = most + 1 - call('ZCARD', key)
    if units > room then
      units, since = room, max(since, moment)
      call('ZADD', key, format('%.0f', since), SINCE)
    end
    -- The serials of a moment have no gap: what is given back are the highest.
    local serial = call('ZCOUNT', key, moment, moment) - (since == moment and 1 or 0)
    local last = serial + units
    while serial < last do
      local members = {}
      for place = 1, 2 * min(UNITS_AT_ONCE, last - serial), 2 do
        serial = serial + 1
        members[place], members[place + 1] = moment, format('%.0f-%06d', moment, serial)
      end
      call('ZADD', key, unpack(members))
    end
  end
end
